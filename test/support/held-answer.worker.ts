/** A thread with a name server that holds its first answer back until it is told to send it. */
import { createSocket } from 'node:dgram';
import { parentPort, workerData } from 'node:worker_threads';
import { FLAG } from '../../lib/dns/wire.ts';
import { listenUdp } from '../../lib/linux/udp.ts';

/** The task of the thread; the descriptor is its parent's. */
export interface HeldAnswer {
  readonly netnsFd: number;
  /** {@link TOLD} when the answer may leave, {@link ANSWERED} when it has. */
  readonly step: Int32Array<SharedArrayBuffer>;
}

/** Said when the server listens, and when the question has come. */
export const LISTENING = 'listening';
export const ASKED = 'asked';

/** Steps of the answer; 0 before them. */
export const TOLD = 1;
export const ANSWERED = 2;

if (parentPort !== null) {
  const { netnsFd, step } = workerData as HeldAnswer;
  const port = parentPort;
  const { fd } = listenUdp({
    netnsFd,
    address: '127.0.0.1',
    port: 53,
    mark: 0,
    reusePort: false,
    receiveBufferBytes: 0,
  });
  const socket = createSocket('udp4');
  socket.on('message', (message, from) => {
    port.postMessage(ASKED);
    Atomics.wait(step, 0, 0);
    message.writeUInt16BE(message.readUInt16BE(2) | FLAG.RESPONSE, 2);
    socket.send(message, from.port, from.address, () => {
      Atomics.store(step, 0, ANSWERED);
      Atomics.notify(step, 0);
    });
  });
  socket.bind({ fd }, () => port.postMessage(LISTENING));
}
