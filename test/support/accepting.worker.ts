/** A thread that accepts connections of a listener, says by which descriptors, and then waits to be terminated. */
import { parentPort, workerData } from 'node:worker_threads';
import { systemClock } from '../../lib/clock/clock.ts';
import { RawListener } from '../../lib/net/raw-listener.ts';
import { RawSocket } from '../../lib/net/raw-socket.ts';

const sockets: RawSocket[] = [];
const listener = new RawListener(workerData as number, {
  redirected: false,
  clock: systemClock,
  onAccepted: ([fd]) => {
    sockets.push(new RawSocket(fd));
    parentPort?.postMessage(fd);
  },
  onRefused: (error) => {
    throw error;
  },
});
// Kept for as long as the thread lives.
parentPort?.once('message', () => listener.close(0));
