/** A client in a pod that opens new connections all the time, whatever becomes of those before. */
import { text as textOf } from 'node:stream/consumers';
import { systemClock } from '../../lib/clock/clock.ts';
import { closeFd, openNetns } from '../../lib/linux/netns.ts';
import { openTcp } from '../../lib/linux/sockets.ts';
import { connectTcp } from '../../lib/net/connect-tcp.ts';

const PACE_MS = 50;
/** Connections that wait at once: one hangs while a proxy waits for its state. */
const MAX_OPEN = 40;
const CONNECT_MS = 30_000;
const REQUEST = 'GET / HTTP/1.1\r\nhost: pod\r\nconnection: close\r\n\r\n';

/** Asks one server again and again, each time over a new connection, until {@link SteadyClient.stop}. */
export class SteadyClient {
  readonly to: { readonly ip: string; readonly port: number };
  /** Connections that were begun, and those whose request was answered. */
  readonly counts = { begun: 0, answered: 0 };
  readonly #netnsFd: number;
  readonly #open = new Set<Promise<void>>();
  readonly #loop: Promise<void>;
  #stopped = false;

  /** Begins. `netns` is the path of the pod's namespace. */
  constructor(netns: string, to: { readonly ip: string; readonly port: number }) {
    this.to = to;
    this.#netnsFd = openNetns(netns);
    this.#loop = this.#run();
  }

  /** Resolves when no connection is left. */
  async stop(): Promise<void> {
    if (this.#stopped) return;
    this.#stopped = true;
    await this.#loop;
    await Promise.all(this.#open);
    closeFd(this.#netnsFd);
  }

  async #run(): Promise<void> {
    while (!this.#stopped) {
      if (this.#open.size < MAX_OPEN) {
        const asked = this.#ask().finally(() => this.#open.delete(asked));
        this.#open.add(asked);
      }
      // The pace of the load; nothing waits for it.
      await systemClock.sleep(PACE_MS);
    }
  }

  async #ask(): Promise<void> {
    this.counts.begun += 1;
    const family = this.to.ip.includes(':') ? 6 : 4;
    const fd = openTcp({ netnsFd: this.#netnsFd, family, mark: 0, noDelay: true });
    try {
      const socket = await connectTcp(fd, this.to, { timeoutMs: CONNECT_MS });
      try {
        socket.write(REQUEST);
        if ((await textOf(socket)).startsWith('HTTP/1.1 200')) this.counts.answered += 1;
      } finally {
        socket.destroy();
      }
    } catch {
      // Nobody listens now, or the proxy has nothing to go by; the counts tell.
    }
  }
}
