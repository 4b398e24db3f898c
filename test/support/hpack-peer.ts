/** Header blocks as another implementation writes them: node:http2's, taken off the wire. */
import { once } from 'node:events';
import { connect } from 'node:http2';
import { duplexPair } from 'node:stream';
import type { Duplex } from 'node:stream';

const PREFACE_BYTES = 24;
const FRAME_HEADER_BYTES = 9;
const HEADERS = 1;
const CONTINUATION = 9;
const SETTINGS_FRAME = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]);

/** A client whose header blocks are looked at and never answered. */
export class HpackPeer {
  readonly #far: Duplex;
  readonly #session: ReturnType<typeof connect>;
  #bytes = Buffer.alloc(0);

  constructor() {
    const [near, far] = duplexPair();
    this.#far = far;
    this.#session = connect('http://peer', { createConnection: () => near });
    this.#session.on('error', () => {});
    far.on('data', (chunk: Buffer) => {
      this.#bytes = Buffer.concat([this.#bytes, chunk]);
    });
    far.write(SETTINGS_FRAME);
  }

  /** The block of one request with these headers. */
  async block(headers: Record<string, string | string[]>): Promise<Buffer> {
    if (this.#session.connecting) await once(this.#session, 'connect');
    const stream = this.#session.request({ ':method': 'CONNECT', ':authority': 'a:1', ...headers });
    stream.on('error', () => {});
    for (;;) {
      const block = this.#take();
      if (block !== null) return block;
      await once(this.#far, 'data');
    }
  }

  close(): void {
    this.#session.destroy();
    this.#far.destroy();
  }

  /** The next whole block on the wire. */
  #take(): Buffer | null {
    let at = this.#bytes.subarray(0, 3).toString() === 'PRI' ? PREFACE_BYTES : 0;
    const parts: Buffer[] = [];
    while (this.#bytes.length >= at + FRAME_HEADER_BYTES) {
      const length = this.#bytes.readUIntBE(at, 3);
      const type = this.#bytes[at + 3];
      const flags = this.#bytes[at + 4] ?? 0;
      const from = at + FRAME_HEADER_BYTES;
      if (this.#bytes.length < from + length) return null;
      at = from + length;
      if (type !== HEADERS && type !== CONTINUATION) continue;
      // node:http2 sends a priority in none of its HEADERS.
      parts.push(this.#bytes.subarray(from, at));
      if ((flags & 4) === 0) continue;
      this.#bytes = this.#bytes.subarray(at);
      return Buffer.concat(parts);
    }
    return null;
  }
}
