import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';
import type { TeardownOwner } from '../../support/actor-context.ts';

/** Carries bytes between clients and the API server, and does so badly when a test wants it. */
export class Gateway {
  readonly #server: Server;
  readonly #target: URL;
  readonly #sockets = new Set<Socket>();
  #refusing = false;
  #stalled = false;
  #delayMs = 0;
  #opened = 0;

  private constructor(target: URL) {
    this.#target = target;
    this.#server = createServer((client) => this.#carry(client));
  }

  /** Listens until the test ends. */
  static async open(target: string, t: TeardownOwner): Promise<Gateway> {
    const gateway = new Gateway(new URL(target));
    gateway.#server.listen(0, '127.0.0.1');
    await once(gateway.#server, 'listening');
    t.teardown(() => {
      gateway.#server.close();
      gateway.cut();
    });
    return gateway;
  }

  /** Stands for the API server's URL. */
  get url(): string {
    return `https://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Number of connections so far. */
  get opened(): number {
    return this.#opened;
  }

  /** Ends all connections. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Ends all connections and refuses new ones until {@link restore}: the API server is away. */
  close(): void {
    this.#refusing = true;
    this.cut();
  }

  /** Holds back everything that the API server says until {@link restore}. */
  stall(): void {
    this.#stalled = true;
    for (const socket of this.#sockets) socket.pause();
  }

  /** Holds back what the API server says on the connections of this moment until {@link restore}; new ones work. */
  freeze(): void {
    for (const socket of this.#sockets) socket.pause();
  }

  /** Delays everything that the API server says. */
  slow(delayMs: number): void {
    this.#delayMs = delayMs;
  }

  /** Carries again as it should. */
  restore(): void {
    this.#refusing = false;
    this.#stalled = false;
    this.#delayMs = 0;
    for (const socket of this.#sockets) socket.resume();
  }

  #carry(client: Socket): void {
    if (this.#refusing) {
      client.destroy();
      return;
    }
    this.#opened += 1;
    const server = connect(Number(this.#target.port), this.#target.hostname);
    const end = (): void => {
      for (const socket of [client, server]) {
        socket.destroy();
        this.#sockets.delete(socket);
      }
    };
    for (const socket of [client, server]) {
      this.#sockets.add(socket);
      // The end of one is the end of both.
      socket.on('error', end).on('close', end);
      if (this.#stalled) socket.pause();
    }
    client.on('data', (bytes) => server.write(bytes));
    server.on('data', (bytes) => {
      if (this.#delayMs === 0) client.write(bytes);
      else setTimeout(() => client.write(bytes), this.#delayMs);
    });
  }
}
