/** A thread that takes two connections out of a listener's queue, ends each if it is told to, and resets it. */
import { once } from 'node:events';
import { workerData } from 'node:worker_threads';
import { acceptQueued } from '../../lib/linux/sockets.ts';
import { RawSocket } from '../../lib/net/raw-socket.ts';
import { until } from './until.ts';

/** The task of the thread. */
export interface Farewell {
  readonly listener: number;
  readonly endsFirst: boolean;
  /** Set when it is done; who waits for it is woken. */
  readonly done: Int32Array;
}

const { listener, endsFirst, done } = workerData as Farewell;
for (let left = 2; left > 0; left -= 1) {
  const accepted = await until(() => acceptQueued(listener, false, 1)[0], { what: 'a connection' });
  const socket = new RawSocket(accepted[0]).adopt();
  if (endsFirst) {
    socket.end();
    await once(socket, 'finish');
  }
  socket.resetAndDestroy();
  await once(socket, 'close');
}
Atomics.store(done, 0, 1);
Atomics.notify(done, 0);
