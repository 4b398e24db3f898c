/** Keeps connections open across generations of proxies, and checks each after every step. */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { closeFd, openNetns } from '../../lib/linux/netns.ts';
import { openTcp } from '../../lib/linux/sockets.ts';
import { connectTcp } from '../../lib/net/connect-tcp.ts';

const TIMEOUT_MS = 15_000;

/** Keep-alive connections out of one namespace to one HTTP server. */
export class KeptConnections {
  readonly #netnsFd: number;
  readonly #to: { readonly ip: string; readonly port: number };
  readonly #sockets: Socket[] = [];

  constructor(netnsPath: string, to: { readonly ip: string; readonly port: number }) {
    this.#netnsFd = openNetns(netnsPath);
    this.#to = to;
  }

  get count(): number {
    return this.#sockets.length;
  }

  /** Opens one more connection. */
  async open(): Promise<void> {
    const fd = openTcp({ netnsFd: this.#netnsFd, family: 4, mark: 0, noDelay: true });
    const socket = await connectTcp(fd, this.#to, { timeoutMs: TIMEOUT_MS });
    socket.on('error', () => undefined);
    this.#sockets.push(socket);
  }

  /** Sends a request over each; returns how many did not answer. */
  async dropped(): Promise<number> {
    const answers = await Promise.allSettled(this.#sockets.map((socket) => ask(socket)));
    return answers.filter(({ status }) => status === 'rejected').length;
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy();
    closeFd(this.#netnsFd);
  }
}

async function ask(socket: Socket): Promise<void> {
  if (socket.destroyed || socket.readableEnded) throw new Error('it has ended');
  const answered = once(socket, 'data', { signal: AbortSignal.timeout(TIMEOUT_MS) });
  socket.resume();
  socket.write('GET / HTTP/1.1\r\nHost: kept\r\nConnection: keep-alive\r\n\r\n');
  const [chunk] = (await answered) as [Buffer];
  if (!chunk.toString().startsWith('HTTP/1.1 200')) throw new Error(chunk.toString());
  // The rest of a partial answer arrives before the next step's request.
}
