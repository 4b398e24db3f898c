import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import test from 'ava';
import * as z from 'zod';
import {
  SIGNED_BOARD,
  certificateSign,
  defineJob,
  policyCompile,
  signedSchema,
} from '../../../lib/bus/catalog.ts';
import type { SignBody, Signed } from '../../../lib/bus/catalog.ts';
import type { JobAttempt } from '../../../lib/bus/contract.ts';
import { DEAD_LETTERS_MAX } from '../../../lib/bus/limits.ts';
import { WorkQueue } from '../../../lib/bus/work-queue.ts';
import { systemClock } from '../../../lib/clock/clock.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { openBus } from '../../support/bus.ts';
import { startCutProxy } from '../../support/cut-proxy.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { startTestRedis } from '../../support/redis.ts';
import { until } from '../../support/until.ts';

const node = { node: 'node-1' } as const;

/** A job with quick and frequent retries. */
const flaky = defineJob({
  queue: 'sign',
  name: 'certificate.sign',
  version: 2,
  body: z.strictObject({ text: z.string() }),
  sample: { text: 'x' },
  attempts: 3,
  backoffMs: 20,
});

/** The numbers of the attempts that were made. An attempt counts once however often it ran: a stall may have it run again. */
function attemptsOf(runs: readonly JobAttempt[]): readonly number[] {
  return [...new Set(runs.map(({ attempt }) => attempt))];
}

test('a signing job goes from the proxy to the fetcher and its answer back', async (t) => {
  const redis = await startTestRedis(t);
  const proxy = openBus(t, redis.config('node-proxy.node-1'), 'node-proxy').bus;
  const fetcher = openBus(t, redis.config('cert-fetcher.node-1'), 'cert-fetcher').bus;
  const board = fetcher.results(SIGNED_BOARD, node, signedSchema);
  const seen: (SignBody & JobAttempt)[] = [];
  fetcher.consume(certificateSign, node, { concurrency: 2 }, async (body, attempt) => {
    seen.push({ ...body, ...attempt });
    await board.put(attempt.id, { ok: true, chain: ['leaf', 'root'] }, 60_000);
  });
  const queue = proxy.queue(certificateSign, node);
  const answers = proxy.results(SIGNED_BOARD, node, signedSchema);
  const answer = answers.wait('p.1.2', 20_000);
  await until(() => queue.add('p.1.2', certificateSign.sample, { priority: 1 }).then(() => true), {
    what: 'the job',
  });
  t.deepEqual(await answer, { ok: true, chain: ['leaf', 'root'] } satisfies Signed);
  t.deepEqual(attemptsOf(seen), [1]);
  t.false(seen[0]?.lastAttempt);
  // A finished job leaves nothing that would block the next one of the same id. The answer arrives before the job has finished.
  await until(async () => (await proxy.queueCounts([node]))[0]?.active === 0, { what: 'its end' });
  const before = seen.length;
  await queue.add('p.1.2', certificateSign.sample);
  await until(() => seen.length > before, { what: 'the run of the second job' });
});

for (const nth of [1, 2, 3, 4, 5, 6, 7, 8]) {
  test(`jobs pass after a first connection that broke at the ${nth}. question for the server's version`, async (t) => {
    const redis = await startTestRedis(t, { nodes: ['node-1'] });
    const path = join(await makeScratch('cut'), 'redis.sock');
    const proxy = await startCutProxy(t, path, redis.socketPath);
    proxy.arm({ needle: 'info', nth, side: 'before', onCut: () => proxy.cutAll() });
    const config = { ...redis.config(), endpoint: { kind: 'unix', path } } as const;
    const { bus } = openBus(t, config);
    const seen: string[] = [];
    bus.consume(certificateSign, node, { concurrency: 1 }, async (_body, { id }) => {
      seen.push(id);
    });
    const queue = bus.queue(certificateSign, node);
    const add = (): Promise<boolean> =>
      queue.add('p.1.2', certificateSign.sample).then(
        () => true,
        () => false,
      );
    await until(add, { what: 'the job is taken' });
    await until(() => seen.includes('p.1.2'), { what: 'the job has run' });
    t.pass();
  });
}

test('urgency is by priority, can be raised, and an id waits only once', async (t) => {
  const redis = await startTestRedis(t);
  const proxy = openBus(t, redis.config('node-proxy.node-1'), 'node-proxy').bus;
  const queue = proxy.queue(certificateSign, node);
  await until(() => proxy.connected, { what: 'Redis' });
  const add = (id: string, priority: number): Promise<void> =>
    queue.add(id, { ...certificateSign.sample, process: id }, { priority });
  await until(() => add('warm-1', 10).then(() => true), { what: 'the first job' });
  await add('warm-2', 10);
  await add('warm-2', 10);
  await add('renewal', 5);
  await add('gone', 1);
  await queue.remove('gone');
  await queue.setPriority('warm-2', 1);
  await queue.setPriority('nobody', 1);
  const cli = openBus(t, redis.config('cli'), 'cli').bus;
  const counts = await until(() => cli.queueCounts(['mesh', node]), { what: 'the counts' });
  t.deepEqual(
    counts.map(({ name, waiting }) => [name, waiting]),
    [
      ['compile', 0],
      ['explain', 0],
      ['sign.node-1', 3],
    ],
  );
  const order: string[] = [];
  const fetcher = openBus(t, redis.config('cert-fetcher.node-1'), 'cert-fetcher').bus;
  fetcher.consume(certificateSign, node, { concurrency: 1 }, async (body) => {
    order.push(body.process);
  });
  await until(() => order.length === 3, { what: 'the jobs' });
  t.deepEqual(order, ['warm-2', 'renewal', 'warm-1']);
});

test('attempts are bounded, dead letters are counted, and a dead job can be asked for again', async (t) => {
  const redis = await startTestRedis(t);
  const { bus, metrics } = openBus(t, redis.config('cert-fetcher.node-1'));
  const attempts: JobAttempt[] = [];
  let heal = false;
  bus.consume(flaky, node, { concurrency: 1 }, async (_body, attempt) => {
    attempts.push(attempt);
    if (!heal) throw new MeshError('IDENTITY_UNAVAILABLE', 'no answer');
  });
  const queue = bus.queue(flaky, node);
  await until(() => queue.add('a', { text: 'a' }).then(() => true), { what: 'the job' });
  const dead = async (): Promise<number> =>
    (await bus.queueCounts([node])).reduce((sum, counts) => sum + counts.dead, 0);
  await until(async () => (await dead()) === 1, { what: 'the dead letter' });
  t.deepEqual(attemptsOf(attempts), [1, 2, 3]);
  t.true(attempts.every(({ attempt, lastAttempt }) => lastAttempt === (attempt === 3)));
  const counted = /weft_bus_jobs_total\{queue="sign",outcome="dead"\} 1/;
  await until(async () => counted.test(await metrics.render()), { what: 'the count' });
  heal = true;
  const before = attempts.length;
  await queue.add('a', { text: 'again' });
  await until(() => attempts.length > before, { what: 'the new job' });
  await until(async () => (await dead()) === 0, { what: 'no dead letter' });
  t.true(DEAD_LETTERS_MAX > 0);
});

test('a restarted job has all of its attempts anew, at once; one that runs is left alone', async (t) => {
  const redis = await startTestRedis(t, { nodes: ['node-1'] });
  const proxy = openBus(t, redis.config('node-proxy.node-1'), 'node-proxy').bus;
  const fetcher = openBus(t, redis.config('cert-fetcher.node-1'), 'cert-fetcher').bus;
  const slow = defineJob({ ...certificateSign, backoffMs: 60_000 });
  const runs: string[] = [];
  const running = Promise.withResolvers<void>();
  fetcher.consume(slow, node, { concurrency: 2 }, async (body, { attempt }) => {
    runs.push(`${body.process} ${attempt}`);
    if (body.process === 'long') await running.promise;
    else throw new MeshError('IDENTITY_UNAVAILABLE', 'no answer');
  });
  const queue = proxy.queue(slow, node);
  const body = (id: string): SignBody => ({ ...slow.sample, process: id });
  await until(() => queue.add('a', body('a')).then(() => true), { what: 'the job' });
  await queue.restart('long', body('long'), { priority: 1 });
  const wanted = { name: 'sign.node-1', waiting: 0, active: 1, delayed: 1, failed: 1, dead: 0 };
  const rest = (count: number): Promise<unknown> =>
    until(
      async () =>
        runs.length === count && isDeepStrictEqual((await proxy.queueCounts([node]))[0], wanted),
      { what: `rest after ${count} runs` },
    );
  await rest(2);
  await queue.add('a', body('a'));
  await rest(2);
  for (const id of ['long', 'a']) await queue.restart(id, body(id));
  await rest(3);
  t.deepEqual(runs.toSorted(), ['a 1', 'a 1', 'long 1']);
  running.resolve();
});

test('an error that cannot get better is not tried again', async (t) => {
  const redis = await startTestRedis(t);
  const { bus } = openBus(t, redis.config('cert-fetcher.node-1'));
  const runs: JobAttempt[] = [];
  bus.consume(flaky, node, { concurrency: 1 }, async (_body, attempt) => {
    runs.push(attempt);
    throw new MeshError('IDENTITY_INVALID', 'the CSR is garbage');
  });
  const queue = bus.queue(flaky, node);
  await until(() => queue.add('a', { text: 'a' }).then(() => true), { what: 'the job' });
  await until(async () => (await bus.queueCounts([node]))[0]?.dead === 1, { what: 'the end' });
  t.deepEqual(attemptsOf(runs), [1]);
});

test('a message of another version or shape is parked and counted, the next one is served', async (t) => {
  const redis = await startTestRedis(t);
  const old = openBus(t, redis.config('node-proxy.node-1'), 'old').bus;
  const { bus, metrics, lines } = openBus(t, redis.config('cert-fetcher.node-1'));
  const seen: string[] = [];
  const upgradable = defineJob({
    ...flaky,
    version: 2,
    previous: (body) => ({ text: `upgraded ${(body as SignBody).process}` }),
  });
  bus.consume(upgradable, node, { concurrency: 1 }, async (body) => {
    seen.push(body.text);
  });
  const queue = old.queue(certificateSign, node);
  await until(() => queue.add('v1', certificateSign.sample).then(() => true), { what: 'the job' });
  await until(() => seen.length === 1, { what: 'the upgraded message' });
  const future = old.queue(defineJob({ ...flaky, version: 9 }), node);
  await future.add('v9', { text: 'from the future' });
  await until(async () => (await bus.queueCounts([node]))[0]?.dead === 1, {
    what: 'the parked job',
  });
  t.deepEqual(seen, ['upgraded node-proxy-1']);
  const counted = /weft_bus_parked_total\{queue="sign"\} 1/;
  await until(async () => counted.test(await metrics.render()), { what: 'the count' });
  const parked = (): boolean =>
    lines.some((line) => line['message'] === 'job.parked' && line['id'] === 'v9');
  await until(parked, { what: 'the line' });
});

test('jobs go on after Redis was killed; without Redis the producer is told at once', async (t) => {
  const redis = await startTestRedis(t);
  const { bus } = openBus(t, redis.config('policy-evaluator'));
  const done: string[] = [];
  bus.consume(policyCompile, 'mesh', { concurrency: 4 }, async (body) => {
    done.push(body.setId);
  });
  const queue = bus.queue(policyCompile, 'mesh');
  const add = (id: string): Promise<void> => queue.add(id, { setId: id, keys: [] });
  await until(() => add('one').then(() => true), { what: 'the first job' });
  await until(() => done.includes('one'), { what: 'its run' });
  await redis.kill();
  await until(() => !bus.connected, { what: 'the loss' });
  const error = await t.throwsAsync(add('two'), { instanceOf: MeshError });
  t.is(error.code, 'BUS_UNAVAILABLE');
  await redis.start({ empty: true });
  await until(() => add('three').then(() => true), { what: 'the next job', timeoutMs: 20_000 });
  await until(() => done.includes('three'), { what: 'its run', timeoutMs: 30_000 });
  t.false(done.includes('two'));
});

test('a drained consumer finishes what it has and takes nothing more', async (t) => {
  const redis = await startTestRedis(t);
  const { bus } = openBus(t, redis.config('policy-evaluator'));
  const started: string[] = [];
  const finished: string[] = [];
  const gate = Promise.withResolvers<void>();
  const work = async ({ setId }: { readonly setId: string }): Promise<void> => {
    started.push(setId);
    await gate.promise;
    finished.push(setId);
  };
  const consumer = bus.consume(policyCompile, 'mesh', { concurrency: 1 }, work);
  const queue = bus.queue(policyCompile, 'mesh');
  await until(() => queue.add('a', { setId: 'a', keys: [] }).then(() => true), { what: 'a job' });
  await until(() => started.length > 0, { what: 'its start' });
  await queue.add('b', { setId: 'b', keys: [] });
  const drained = consumer.drain();
  // A stall before this may have run the job again, but nothing starts after it.
  const begun = [...started];
  t.deepEqual(finished, []);
  gate.resolve();
  await drained;
  t.deepEqual(finished, begun);
  await consumer.close();
  t.deepEqual(started, begun);
  t.deepEqual(new Set(begun), new Set(['a']));
  const next = bus.consume(policyCompile, 'mesh', { concurrency: 1 }, work);
  await until(() => finished.includes('b'), { what: 'the run of the waiting job by the next one' });
  await next.close();
});

test('a job whose consumer stands still for longer than its lock runs again, and its late end changes nothing', async (t) => {
  const redis = await startTestRedis(t);
  const { bus: proxy } = openBus(t, redis.config('node-proxy.node-1'));
  const gates = ['first', 'second'].map((name) => ({ name, ...Promise.withResolvers<void>() }));
  const runs: JobAttempt[] = [];
  for (const gate of gates) {
    const { bus } = openBus(t, redis.config('cert-fetcher.node-1'));
    bus.consume(certificateSign, node, { concurrency: 1 }, async (_body, attempt) => {
      runs.push(attempt);
      await gate.promise;
    });
  }
  const queue = proxy.queue(certificateSign, node);
  await until(() => queue.add('p.1.2', certificateSign.sample).then(() => true), {
    what: 'the job',
  });
  await until(() => runs.length === 1, { what: 'its start' });
  // The lock is over, as it is where nobody has renewed it.
  const admin = redis.client();
  const [lock = ''] = await admin.keys(`${redis.prefix}:*:p.1.2:lock`);
  t.is(await admin.del(lock), 1);
  await until(() => runs.length === 2, { what: 'its second start' });
  t.deepEqual(attemptsOf(runs), [1], 'a lost consumer is not the failure of the job');
  for (const gate of gates) gate.resolve();
  const left = async (): Promise<readonly (number | undefined)[]> => {
    const [counts] = await proxy.queueCounts([node]);
    return [counts?.waiting, counts?.active, counts?.dead];
  };
  await until(async () => (await left()).every((count) => count === 0), { what: 'its end' });
  await queue.add('p.1.2', certificateSign.sample);
  await until(() => runs.length > 2, { what: 'the next job of this id' });
});

test('the job of a killed consumer is taken by the next one', async (t) => {
  const redis = await startTestRedis(t);
  const { bus: proxy } = openBus(t, redis.config('node-proxy.node-1'));
  const taken: string[] = [];
  const fetchers = ['first', 'second'].map((name) => {
    const { bus } = openBus(t, redis.config('cert-fetcher.node-1'));
    return () =>
      bus.consume(certificateSign, node, { concurrency: 1 }, async () => {
        taken.push(name);
        // It never ends: what a killed process leaves in Redis is a job in hand.
        if (name === 'first') await new Promise(() => undefined);
      });
  });
  const killed = fetchers[0]?.();
  const queue = proxy.queue(certificateSign, node);
  await until(() => queue.add('p.1.2', certificateSign.sample).then(() => true), {
    what: 'the job',
  });
  await until(() => taken.length > 0, { what: 'its start' });
  await killed?.close();
  fetchers[1]?.();
  await until(() => taken.includes('second'), { what: 'its start by the next one' });
  t.is(taken[0], 'first');
});

test('a result is awaited across a Redis restart, and its absence ends in null', async (t) => {
  const redis = await startTestRedis(t);
  const fetcher = openBus(t, redis.config('cert-fetcher.node-1')).bus;
  const proxy = openBus(t, redis.config('node-proxy.node-1')).bus;
  const answers = proxy.results(SIGNED_BOARD, node, signedSchema);
  await until(() => proxy.connected, { what: 'Redis' });
  t.is(await answers.wait('nothing', 50), null);
  const waiting = answers.wait('late', 120_000);
  await redis.kill();
  await until(() => !proxy.connected, { what: 'the loss' });
  await redis.start();
  const board = fetcher.results(SIGNED_BOARD, node, signedSchema);
  const body: Signed = { ok: true, chain: ['leaf', 'root'] };
  await until(() => board.put('late', body, 60_000).then(() => true), { what: 'the answer' });
  t.deepEqual(await waiting, body);
  const abort = new AbortController();
  const aborted = answers.wait('never', 30_000, abort.signal);
  abort.abort(new MeshError('BUS_TIMEOUT', 'no longer needed'));
  await t.throwsAsync(aborted, { message: 'no longer needed' });
  await redis.client().set(`${redis.prefix}:{node-1}:result:signed:bad`, '{');
  await t.throwsAsync(answers.wait('bad', 1_000), {
    instanceOf: MeshError,
    message: /result signed bad/,
  });
});

test('a queue nobody serves refuses the job that is too many', async (t) => {
  const redis = await startTestRedis(t);
  const client = redis.client();
  await client.ping();
  const queue = new WorkQueue(policyCompile, {
    client,
    prefix: `${redis.prefix}:{mesh}`,
    clock: systemClock,
    from: 'test',
    waitingMax: 2,
    onError: (error) => t.fail(error.message),
  });
  await queue.add('a', { setId: 'a', keys: [] });
  await queue.add('b', { setId: 'b', keys: [] }, { priority: 3 });
  const error = await t.throwsAsync(queue.add('c', { setId: 'c', keys: [] }), {
    instanceOf: MeshError,
  });
  t.is(error.code, 'BUS_UNAVAILABLE');
  t.regex(error.message, /queue compile is full/);
  await t.throwsAsync(queue.add('a:b', { setId: 'c', keys: [] }), { message: /job id/ });
  await queue.close();
});
