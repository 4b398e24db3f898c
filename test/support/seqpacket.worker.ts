/** A thread that holds a listening and a connected SEQPACKET socket when it ends. */
import { parentPort, workerData } from 'node:worker_threads';
import { connectSeqpacket, listenSeqpacket } from '../../lib/linux/seqpacket.ts';

const { path, exit } = workerData as { path: string; exit: boolean };
const server = listenSeqpacket(path, { mode: 0o600, onError: () => undefined });
server.onConnection = (connection) => {
  connection.onMessage = ({ data }) => {
    parentPort?.postMessage(data.toString());
    if (exit) process.exit(3);
  };
};
await connectSeqpacket(path).send(Buffer.from('hello'));
