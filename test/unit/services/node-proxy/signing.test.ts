import test from 'ava';
import type { SignBody, Signed } from '../../../../lib/bus/catalog.ts';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { BusSigning, jobId } from '../../../../services/node-proxy/signing.ts';
import { keptLog } from '../../../support/actor-context.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const WEB = 'spiffe://cluster.local/ns/demo/sa/web';
const ID = jobId('p', WEB, 'csr');

interface Kit {
  readonly clock: FakeClock;
  readonly signing: BusSigning;
  readonly calls: string[];
  readonly told: string[];
  readonly abort: AbortController;
  /** The result on the board; null for none. */
  result: Signed | null;
  busAway: boolean;
  /** While set, the queue accepts no job. */
  slow: Promise<void> | null;
  connect(connected: boolean): void;
  request(): Promise<readonly string[]>;
}

/** Makes a queue and a board under the test's control; the integration tests use the real ones. */
function kit(): Kit {
  const clock = new FakeClock();
  const calls: string[] = [];
  const told: string[] = [];
  const abort = new AbortController();
  let listener: (connected: boolean) => void = () => undefined;
  const away = (): void => {
    if (made.busAway) throw new MeshError('BUS_UNAVAILABLE', 'Redis is away');
  };
  const signing = new BusSigning('p', {
    clock,
    log: keptLog('test').log,
    bus: {
      onConnection: (added) => {
        listener = added;
        return () => undefined;
      },
    },
    queue: {
      add: async (id: string, _body: SignBody, options) => {
        away();
        await made.slow;
        calls.push(`add ${id} ${options?.priority}`);
      },
      setPriority: async (id, priority) => {
        calls.push(`raise ${id} ${priority}`);
      },
      restart: async (id, _body, options) => {
        away();
        calls.push(`restart ${id} ${options?.priority}`);
      },
      remove: async (id) => {
        calls.push(`remove ${id}`);
      },
    },
    board: {
      wait: async (_id, timeoutMs, signal) => {
        if (made.result === null) await clock.sleep(timeoutMs, signal);
        return made.result;
      },
    },
  });
  const made: Kit = {
    clock,
    signing,
    calls,
    told,
    abort,
    result: null,
    busAway: false,
    slow: null,
    connect: (connected) => listener(connected),
    request: () =>
      signing.request(WEB, 'csr', 'warmUp', {
        signal: abort.signal,
        onFailure: (error) => told.push(error.message),
      }),
  };
  return made;
}

const failure = (message: string, attempt: number, final = false, at = 0): Signed => ({
  ok: false,
  error: { code: 'IDENTITY_REFUSED', message, detail: { attempt, at } },
  final,
});

test('the id is made of process, identity and request, and holds no colon', (t) => {
  t.regex(ID, /^p\.[0-9a-f]{16}\.[0-9a-f]{16}$/);
  t.not(jobId('p', WEB, 'other'), ID);
  t.not(jobId('q', WEB, 'csr'), ID);
});

test('failures are told once each while the queue retries, then the answer counts', async (t) => {
  const played = kit();
  played.result = failure('not yet', 1);
  const answer = played.request();
  await played.clock.advance(3_000);
  t.deepEqual(played.told, ['not yet']);
  played.result = failure('not yet', 2);
  await played.clock.advance(1_000);
  t.deepEqual(played.told, ['not yet', 'not yet']);
  // The job was restarted.
  played.result = failure('not yet', 2, false, 7);
  await played.clock.advance(1_000);
  t.is(played.told.length, 3);
  played.result = { ok: true, chain: ['leaf', 'root'] };
  await played.clock.advance(1_000);
  t.deepEqual(await answer, ['leaf', 'root']);
  t.deepEqual(played.calls, [`add ${ID} 10`]);
});

test('a final failure ends the request', async (t) => {
  const played = kit();
  played.result = failure('never', 8, true);
  const error = await t.throwsAsync(played.request(), { instanceOf: MeshError });
  t.is(error?.code, 'IDENTITY_REFUSED');
  t.deepEqual(played.told, []);
});

test('without an answer the job is put in again with its present urgency', async (t) => {
  const played = kit();
  const answer = played.request();
  await played.clock.advance(1_000);
  played.signing.raise(WEB, 'realTime');
  await played.clock.advance(15_000);
  t.deepEqual(played.calls, [`add ${ID} 10`, `raise ${ID} 1`, `add ${ID} 1`]);
  played.abort.abort(new MeshError('IDENTITY_UNAVAILABLE', 'forgotten'));
  await t.throwsAsync(answer, { message: 'forgotten' });
  t.is(played.calls.at(-1), `remove ${ID}`);
});

test('a hastened request has its job restarted; without one, or without Redis, nothing happens', async (t) => {
  const played = kit();
  played.signing.hasten(WEB);
  const answer = played.request();
  await played.clock.advance(1_000);
  played.signing.hasten(WEB);
  played.busAway = true;
  played.signing.hasten(WEB);
  await played.clock.advance(0);
  t.deepEqual(played.calls, [`add ${ID} 10`, `restart ${ID} 10`]);
  played.abort.abort(new MeshError('IDENTITY_UNAVAILABLE', 'forgotten'));
  await t.throwsAsync(answer, { message: 'forgotten' });
});

test('Redis away is told after a moment, once, and the request goes on when it is back', async (t) => {
  const played = kit();
  played.busAway = true;
  const answer = played.request();
  await played.clock.advance(1_900);
  t.deepEqual(played.told, []);
  await played.clock.advance(10_000);
  t.deepEqual(played.told, ['Redis is away']);
  played.busAway = false;
  played.result = { ok: true, chain: ['leaf', 'root'] };
  await played.clock.advance(1_000);
  t.deepEqual(await answer, ['leaf', 'root']);
});

test('when Redis comes back, perhaps without its data, requests are put in again', async (t) => {
  const played = kit();
  const answer = played.request();
  await played.clock.advance(1_000);
  played.connect(false);
  played.connect(true);
  await played.clock.advance(500);
  t.is(played.calls.length, 2);
  played.abort.abort(new MeshError('IDENTITY_UNAVAILABLE', 'forgotten'));
  await t.throwsAsync(answer, { message: 'forgotten' });
});

test('a request given up while it is put in again leaves no job behind', async (t) => {
  const played = kit();
  const answer = played.request();
  await played.clock.advance(1_000);
  const queue = Promise.withResolvers<void>();
  played.slow = queue.promise;
  played.connect(true);
  await played.clock.advance(500);
  played.abort.abort(new MeshError('IDENTITY_UNAVAILABLE', 'forgotten'));
  await t.throwsAsync(answer, { message: 'forgotten' });
  queue.resolve();
  await played.clock.advance(0);
  t.is(played.calls.at(-2), `add ${ID} 10`);
  t.is(played.calls.at(-1), `remove ${ID}`);
});
