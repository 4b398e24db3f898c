/** The exchanges of a soak client, one connection each, from dialling to the end. */
import { once } from 'node:events';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { GREETING, PORTS } from './protocol.ts';
import type { Exchange } from './protocol.ts';

const KIB = 1_024;
const ROUND_TRIPS = 5;
/** The time limit of an exchange under the full load of the soak. */
const LIMIT_MS = 20_000;

/** Runs one exchange with a server. Rejects when it fails. */
export async function exchange(kind: Exchange, host: string): Promise<void> {
  const socket = connect({ host, port: portOf(kind), noDelay: true, allowHalfOpen: true });
  const { promise: broken, reject } = Promise.withResolvers<never>();
  // The race below reports the failure, so an unhandled rejection here is harmless.
  broken.catch(() => undefined);
  const timer = setTimeout(() => reject(new Error(`not done in ${LIMIT_MS} ms`)), LIMIT_MS);
  socket.on('error', (error: NodeJS.ErrnoException) => {
    // The `serverReset` exchange waits for the reset.
    if (kind !== 'serverReset' || error.code !== 'ECONNRESET') reject(error);
  });
  try {
    // A server may reset the connection before we see that it is connected.
    if (kind !== 'serverReset') await Promise.race([once(socket, 'connect'), broken]);
    await Promise.race([steps[kind](socket, new Incoming(socket)), broken]);
  } finally {
    clearTimeout(timer);
    socket.destroy();
  }
}

function portOf(kind: Exchange): number {
  switch (kind) {
    case 'small':
    case 'clientReset':
      return PORTS.echo;
    case 'down':
    case 'abandon':
      return PORTS.source;
    case 'up':
    case 'halfClose':
      return PORTS.sink;
    case 'serverFirst':
      return PORTS.serverFirst;
    case 'serverReset':
      return PORTS.reset;
    case 'stall':
      return PORTS.stall;
  }
}

type Step = (socket: Socket, incoming: Incoming) => Promise<void>;

const steps: Readonly<Record<Exchange, Step>> = {
  async small(socket, incoming) {
    for (let round = 0; round < ROUND_TRIPS; round += 1) {
      const text = `${'ping'.repeat(50)}${round}`;
      socket.write(text);
      expect(await incoming.take(text.length), text);
    }
    await endOf(socket, incoming, '');
  },
  async serverFirst(socket, incoming) {
    expect(await incoming.take(GREETING.length), GREETING);
    socket.write('hello');
    await endOf(socket, incoming, 'hello');
  },
  async halfClose(socket, incoming) {
    socket.end('x'.repeat(3 * KIB));
    await endOf(socket, incoming, `${3 * KIB}\n`);
  },
  stall: (socket, incoming) => upload(socket, incoming, 512 * KIB),
  up: (socket, incoming) => upload(socket, incoming, 2 * KIB * KIB),
  async down(socket, incoming) {
    const wanted = 4 * KIB * KIB;
    socket.write(`${wanted}\n`);
    expect(String((await incoming.rest()).length), String(wanted));
    await finished(socket.end());
  },
  async clientReset(socket, incoming) {
    socket.write('x'.repeat(20 * KIB));
    await incoming.take(KIB);
    socket.resetAndDestroy();
  },
  async serverReset(_socket, incoming) {
    // Bytes in flight may be lost; a clean end would claim that none were.
    const end = await incoming.rest().then(
      (text) => `a clean end after ${text.length} bytes`,
      (error: NodeJS.ErrnoException) => error.code ?? error.message,
    );
    expect(end, 'ECONNRESET');
  },
  async abandon(socket, incoming) {
    socket.write(`${64 * KIB * KIB}\n`);
    await incoming.take(100 * KIB);
    socket.destroy();
  },
};

/** The bytes from the peer, read piece by piece. */
class Incoming {
  readonly #chunks: AsyncIterator<Buffer>;
  #text = '';

  constructor(socket: Socket) {
    this.#chunks = socket.iterator({ destroyOnReturn: false }) as AsyncIterator<Buffer>;
  }

  /** Reads the next `count` bytes. */
  async take(count: number): Promise<string> {
    while (this.#text.length < count) {
      const { done, value } = await this.#chunks.next();
      if (done === true) throw new Error(`ended after ${this.#text.length} bytes`);
      this.#text += value.toString('latin1');
    }
    const taken = this.#text.slice(0, count);
    this.#text = this.#text.slice(count);
    return taken;
  }

  /** Reads everything to the end. */
  async rest(): Promise<string> {
    for (;;) {
      const { done, value } = await this.#chunks.next();
      if (done === true) return this.#text;
      this.#text += value.toString('latin1');
    }
  }
}

async function upload(socket: Socket, incoming: Incoming, bytes: number): Promise<void> {
  const chunk = Buffer.alloc(64 * KIB, 'y');
  for (let left = bytes; left > 0; left -= chunk.length) {
    if (!socket.write(chunk)) await once(socket, 'drain');
  }
  socket.end();
  await endOf(socket, incoming, `${bytes}\n`);
}

/** Ends our side, and checks that the rest of the peer's bytes is `text`. */
async function endOf(socket: Socket, incoming: Incoming, text: string): Promise<void> {
  if (!socket.writableEnded) socket.end();
  expect(await incoming.rest(), text);
  await finished(socket);
}

async function finished(socket: Socket): Promise<void> {
  if (!socket.writableFinished) await once(socket, 'finish');
}

function expect(is: string, wanted: string): void {
  if (is === wanted) return;
  throw new Error(`got ${is.length} bytes (${is.slice(0, 40)}), wanted ${wanted.slice(0, 40)}`);
}
