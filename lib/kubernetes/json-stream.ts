/** Cuts the bytes of lists and watches into single objects, so that no answer is held as a whole. */
import { MeshError } from '../errors/mesh-error.ts';
import { MAX_ANSWER_BYTES, MAX_OBJECT_BYTES } from './limits.ts';

const NEWLINE = 0x0a;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const COMMA = 0x2c;

/** Parses one value. Throws KUBERNETES_INVALID for bytes that are not JSON. */
export function parseJson(bytes: Uint8Array, what: string): unknown {
  try {
    return JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('utf8'));
  } catch (error) {
    throw new MeshError('KUBERNETES_INVALID', `${what}: the answer is not JSON`, { cause: error });
  }
}

/** Bytes of one value that arrive in parts. Throws KUBERNETES_INVALID above its limit. */
class Parts {
  readonly #limitBytes: number;
  readonly #what: string;
  #parts: Uint8Array[] = [];
  #size = 0;

  constructor(limitBytes: number, what: string) {
    this.#limitBytes = limitBytes;
    this.#what = what;
  }

  add(bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    this.#size += bytes.length;
    if (this.#size > this.#limitBytes) {
      throw new MeshError('KUBERNETES_INVALID', `${this.#what} is above ${this.#limitBytes} bytes`);
    }
    this.#parts.push(bytes);
  }

  /** Returns everything added since the last call. */
  take(): Uint8Array {
    const [only] = this.#parts;
    const whole =
      this.#parts.length === 1 && only !== undefined ? only : Buffer.concat(this.#parts);
    this.#parts = [];
    this.#size = 0;
    return whole;
  }

  get empty(): boolean {
    return this.#size === 0;
  }
}

/**
 * Yields the lines of a stream as parsed JSON, those of one chunk together; empty lines are skipped. Throws KUBERNETES_INVALID for
 * what is none.
 */
export async function* jsonLines(
  input: AsyncIterable<Uint8Array>,
  what: string,
): AsyncGenerator<readonly unknown[], void> {
  const line = new Parts(MAX_OBJECT_BYTES, `an event of ${what}`);
  for await (const chunk of input) {
    const values: unknown[] = [];
    let from = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, from)) {
      line.add(chunk.subarray(from, end));
      from = end + 1;
      if (!line.empty) values.push(parseJson(line.take(), what));
    }
    line.add(chunk.subarray(from));
    if (values.length > 0) yield values;
  }
}

/**
 * Reads a `List` object: yields each element of its array and returns the rest of it, with an empty array. A `List` has one array
 * at its top level, `items`. Throws KUBERNETES_INVALID for bytes that are no such object.
 */
export async function* listItems(
  input: AsyncIterable<Uint8Array>,
  what: string,
): AsyncGenerator<unknown, unknown> {
  const rest = new Parts(MAX_ANSWER_BYTES, `a list of ${what} without its items`);
  const item = new Parts(MAX_OBJECT_BYTES, `an object of ${what}`);
  const scan = new ListScan();
  for await (const chunk of input) {
    let from = 0;
    for (let cut = scan.next(chunk, 0); cut !== null; cut = scan.next(chunk, cut.at)) {
      const bytes = chunk.subarray(from, cut.at);
      from = cut.at;
      if (cut.ended === 'rest') {
        rest.add(bytes);
      } else {
        item.add(bytes);
        yield parseJson(item.take(), what);
      }
    }
    (scan.inItem ? item : rest).add(chunk.subarray(from));
  }
  return parseJson(rest.take(), what);
}

/** Finds where the elements of a list begin and end. Separators between them belong to neither. */
class ListScan {
  #depth = 0;
  #inText = false;
  #escaped = false;
  #inArray = false;
  /** True between the first byte of an element and its last. */
  inItem = false;

  /** Returns the next border at or after `at`; null when the chunk has none. Commas between elements are blanked. */
  next(
    chunk: Uint8Array,
    at: number,
  ): { readonly at: number; readonly ended: 'rest' | 'item' } | null {
    for (let place = at; place < chunk.length; place += 1) {
      const byte = chunk[place] ?? 0;
      if (this.#inText) {
        if (this.#escaped) this.#escaped = false;
        else if (byte === BACKSLASH) this.#escaped = true;
        else if (byte === QUOTE) this.#inText = false;
        continue;
      }
      switch (byte) {
        case QUOTE:
          this.#inText = true;
          break;
        case OPEN_BRACE:
        case OPEN_BRACKET:
          if (this.#inArray && this.#depth === 2 && !this.inItem) {
            // Found again in the next call, inside of the element.
            this.inItem = true;
            return { at: place, ended: 'rest' };
          }
          if (byte === OPEN_BRACKET && this.#depth === 1) this.#inArray = true;
          this.#depth += 1;
          break;
        case CLOSE_BRACE:
        case CLOSE_BRACKET:
          this.#depth -= 1;
          if (this.inItem && this.#depth === 2) {
            this.inItem = false;
            return { at: place + 1, ended: 'item' };
          }
          if (this.#depth === 1) this.#inArray = false;
          break;
        case COMMA:
          if (this.#inArray && this.#depth === 2 && !this.inItem) chunk[place] = 0x20;
          break;
        default:
      }
    }
    return null;
  }
}
