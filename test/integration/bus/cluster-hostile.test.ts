/** Tests cluster faults other than a crash: masters hang, are demoted by force, or change their passwords. */
import { readFileSync, writeFileSync } from 'node:fs';
import test from 'ava';
import { TableCopy, bytes, openBus } from '../../support/bus.ts';
import { startClusterRedis } from '../../support/redis-cluster.ts';
import { until } from '../../support/until.ts';

const NODE = { node: 'node-1' } as const;

test('masters hang, are demoted by force, and passwords change: writer and reader go on', async (t) => {
  t.timeout(180_000);
  const redis = await startClusterRedis(t);
  const user = 'node-agent.node-1';
  const agent = openBus(t, redis.config(user), 'node-agent');
  const lease = agent.bus.lease('agent', NODE);
  await until(() => lease.held, { what: 'the lease' });
  const writer = agent.bus.writer('enrolments', NODE, lease);
  const copy = new TableCopy();
  const reader = openBus(t, redis.config('control-plane'), 'control-plane');
  reader.bus.reader('enrolments', NODE, copy);
  let round = 0;
  /** As the agent does: after an unclear outcome it rewrites everything. */
  const write = async (what: string): Promise<void> => {
    round += 1;
    const rows = Array.from({ length: 100 }, (_, index) => [`pod-${index}`, `${round}`] as const);
    await until(
      () => writer.replaceAll(rows.map(([key, value]) => [key, bytes(value)])).then(() => true),
      { what: `a write after ${what}`, timeoutMs: 60_000 },
    );
    await until(() => rows.every(([key, value]) => copy.rows.get(key) === value), {
      what: `the reader after ${what}`,
      timeoutMs: 60_000,
    });
  };
  await write('the start');

  // The master is demoted and every connection stays: writes that the replica has not received are lost.
  const { server: first } = await redis.masterOf('node-1');
  const second = redis.replicaOf(first);
  await redis.cutReplica(first);
  await write('the replica was cut off');
  const before = copy.epochs.length;
  await second.client.call('CLUSTER', 'FAILOVER', 'TAKEOVER');
  await until(async () => (await redis.masterOf('node-1')).server === second, {
    what: 'the take-over',
    timeoutMs: 30_000,
  });
  await until(() => copy.epochs.length > before, {
    what: 'the reader to notice that the table is older',
    timeoutMs: 30_000,
  });
  t.not(await writer.standing(), 'intact');
  await write('the take-over');

  // The passwords change: open connections go on, new ones need the new password.
  const file = redis.config(user).passwordFile ?? '';
  t.not(readFileSync(file, 'utf8').trim(), 'changed');
  const masters = redis.servers.filter(({ client }) => client.status === 'ready');
  for (const { client } of masters) {
    await client.call('ACL', 'SETUSER', user, 'resetpass', '>changed');
    await client.call('CLIENT', 'KILL', 'USER', user);
  }
  await until(() => !agent.bus.connected, { what: 'the loss of the connection' });
  writeFileSync(file, 'changed\n');
  await write('the password was changed');

  // The master hangs: no connection is closed.
  await until(async () => /master_link_status:up/.test(await first.client.info('replication')), {
    what: 'the old master to follow',
    timeoutMs: 30_000,
  });
  second.pause();
  await until(async () => (await redis.masterOf('node-1')).server === first, {
    what: 'the old master to be promoted',
    timeoutMs: 60_000,
  });
  await write('the master hung');
  second.resume();
  await write('it was back');
});
