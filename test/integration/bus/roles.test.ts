import test from 'ava';
import { EXPLAIN_BOARD, boards, policyExplain } from '../../../lib/bus/catalog.ts';
import { TableCopy, bytes, heldLease, openBus } from '../../support/bus.ts';
import { startTestRedis } from '../../support/redis.ts';
import { until } from '../../support/until.ts';

/** Tests the duties of the roles that no other test of the bus uses. */

test('a node agent writes its enrolments, control plane and command line read them', async (t) => {
  const redis = await startTestRedis(t);
  const scope = { node: 'node-1' } as const;
  const agent = openBus(t, redis.config('node-agent.node-1'), 'node-agent').bus;
  const lease = await heldLease(agent, 'agent', scope);
  const writer = agent.writer('enrolments', scope, lease);
  // The first change creates a missing table.
  await writer.apply([{ key: 'pod-1', value: bytes('{}') }]);
  for (const user of ['control-plane', 'cli']) {
    const copy = new TableCopy();
    openBus(t, redis.config(user), user).bus.reader('enrolments', scope, copy);
    await until(() => copy.rows.has('pod-1'), { what: `the enrolment as ${user}` });
  }
  const foreign = agent.lease('agent', { node: 'node-2' });
  const late = openBus(t, redis.config('node-agent.node-2'), 'other').bus.lease('agent', {
    node: 'node-2',
  });
  await until(() => late.held, { what: 'the lease of its owner' });
  t.false(foreign.held, 'the lease of another node is out of reach');
});

test('the command line asks for an explanation and gets it', async (t) => {
  const redis = await startTestRedis(t);
  const cli = openBus(t, redis.config('cli'), 'cli').bus;
  const evaluator = openBus(t, redis.config('policy-evaluator'), 'policy-evaluator').bus;
  const { body, sample } = boards.explain;
  const results = evaluator.results(EXPLAIN_BOARD, 'mesh', body);
  evaluator.consume(policyExplain, 'mesh', { concurrency: 1 }, async (request, { id }) => {
    await results.put(
      id,
      { ...sample, detail: `${request.from.pod} to ${request.to.name}` },
      10_000,
    );
  });
  const queue = cli.queue(policyExplain, 'mesh');
  const answers = cli.results(EXPLAIN_BOARD, 'mesh', body);
  await until(() => queue.add('q1', policyExplain.sample).then(() => true), { what: 'the job' });
  t.is((await answers.wait('q1', 10_000))?.detail, 'client to web');
  const counts = await cli.queueCounts(['mesh', { node: 'node-1' }, { node: 'node-2' }]);
  t.is(counts.length, 4);
});
