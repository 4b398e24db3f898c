/** A thread that connects to a peer which does not answer, says by which descriptor, and then waits to be terminated. */
import { parentPort, workerData } from 'node:worker_threads';
import { openTcp } from '../../lib/linux/sockets.ts';
import { connectTcp } from '../../lib/net/connect-tcp.ts';
import type { Endpoint } from '../../lib/net/socket.ts';

const fd = openTcp({ netnsFd: null, family: 4, mark: 0, noDelay: true });
void connectTcp(fd, workerData as Endpoint, { timeoutMs: 600_000 });
parentPort?.postMessage(fd);
