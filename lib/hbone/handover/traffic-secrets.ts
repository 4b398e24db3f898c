import { SUITES } from './records.ts';
import type { SuiteName } from './records.ts';

const LABELS = {
  client: Buffer.from('CLIENT_TRAFFIC_SECRET_0 ', 'latin1'),
  server: Buffer.from('SERVER_TRAFFIC_SECRET_0 ', 'latin1'),
} as const;

const SPACE = 0x20;

/** The first application traffic secrets of one TLS 1.3 connection, taken from the `keylog` event. They never become text. */
export class TrafficSecrets {
  #client: Buffer | null = null;
  #server: Buffer | null = null;
  #begun = false;
  /** Whether a secret came twice. */
  #ambiguous = false;

  /** Whether OpenSSL has told any secret of the connection. */
  get begun(): boolean {
    return this.#begun;
  }

  /** Takes a line of the key log (RFC 9850) and clears it. */
  readonly take = (line: Buffer): void => {
    this.#begun = true;
    if (startsWith(line, LABELS.client)) {
      this.#ambiguous ||= this.#client !== null;
      this.#client = decode(line);
    } else if (startsWith(line, LABELS.server)) {
      this.#ambiguous ||= this.#server !== null;
      this.#server = decode(line);
    }
    line.fill(0);
  };

  /** Returns the secrets of both directions. Throws an Error unless both are there, of the length that the suite asks for. */
  of(suite: SuiteName): { readonly client: Buffer; readonly server: Buffer } {
    const { secretBytes } = SUITES[suite];
    // A connection has each of these secrets once.
    if (this.#ambiguous) throw new Error('OpenSSL told a secret of the connection twice');
    const client = this.#client;
    const server = this.#server;
    if (client?.length !== secretBytes || server?.length !== secretBytes) {
      throw new Error('OpenSSL did not tell the secrets of the connection');
    }
    return { client, server };
  }

  /** Clears the secrets. */
  clear(): void {
    this.#client?.fill(0);
    this.#server?.fill(0);
    this.#client = null;
    this.#server = null;
  }
}

function startsWith(line: Buffer, label: Buffer): boolean {
  return line.subarray(0, label.length).equals(label);
}

/** Decodes the last field of a line, in hexadecimal. */
function decode(line: Buffer): Buffer {
  const from = line.lastIndexOf(SPACE) + 1;
  let to = from;
  while (to < line.length && digit(line[to]) !== -1) to += 1;
  const secret = Buffer.alloc((to - from) >>> 1);
  for (let index = 0; index < secret.length; index += 1) {
    secret[index] = digit(line[from + 2 * index]) * 16 + digit(line[from + 2 * index + 1]);
  }
  return secret;
}

/** The value of a hexadecimal digit, -1 for any other character. */
function digit(character: number | undefined): number {
  if (character === undefined) return -1;
  if (character >= 0x30 && character <= 0x39) return character - 0x30;
  const lower = character | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}
