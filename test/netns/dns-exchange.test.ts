/** Tests single questions to a name server. */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { makeQuestion } from '../../lib/dns/upstream-answer.ts';
import { TYPE } from '../../lib/dns/wire.ts';
import { closeFd, openNetns } from '../../lib/linux/netns.ts';
import { exchangeUdp } from '../../workers/listener/dns/exchange.ts';
import { ANSWERED, ASKED, LISTENING, TOLD } from '../support/held-answer.worker.ts';
import type { HeldAnswer } from '../support/held-answer.worker.ts';
import { createNetns } from '../support/netns-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';

const NAME_SERVER = new URL('../support/held-answer.worker.ts', import.meta.url);
/** Far above what the question needs to arrive on a busy machine. */
const LIMIT_MS = 8_000;

test('an answer that came while the thread was busy counts, though its time is over', async (t) => {
  const netns = await createNetns(t);
  await netns.ip('link set lo up');
  const netnsFd = openNetns(netns.path);
  t.teardown(() => closeFd(netnsFd));
  const step = new Int32Array(new SharedArrayBuffer(4));
  const worker = new Worker(NAME_SERVER, { workerData: { netnsFd, step } satisfies HeldAnswer });
  t.teardown(() => worker.terminate());
  t.deepEqual(await once(worker, 'message'), [LISTENING]);
  const start = performance.now();
  const path = {
    netnsFd,
    mark: 0,
    server: '127.0.0.1',
    timeoutMs: LIMIT_MS,
    descriptors: { make: <Made>(open: () => Made): Made => open() },
    signal: new AbortController().signal,
  };
  // Timers are next after what has come: here nothing else of this thread runs until the answer waits and the limit is over.
  worker.once('message', (said) => {
    t.is(said, ASKED);
    Atomics.store(step, 0, TOLD);
    Atomics.notify(step, 0);
    Atomics.wait(step, 0, TOLD);
    Atomics.wait(step, 0, ANSWERED, start + LIMIT_MS + 1_000 - performance.now());
  });
  const answer = await exchangeUdp(path, makeQuestion('db.example', TYPE.A));
  t.is(Atomics.load(step, 0), ANSWERED);
  t.true(answer.includes('example'));
});
