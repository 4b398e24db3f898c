/**
 * How far a policy reaches whose contents cannot be decoded: its scope is read by itself, from the top level of the message alone
 * (spec/policy.md §1), so that one bad condition does not hide whom the policy was to protect.
 */

/** A namespace; `''` is every namespace, null nobody but those that its resource name speaks of. */
export type Reach = string | null;

/** Of a policy nothing is known of. */
export const REACHES_ALL = '';

/** Fields of istio.security.Authorization. */
const NAMESPACE_FIELD = 2;
const SCOPE_FIELD = 3;
/** Values of `scope`; the first is what an absent one means. */
const GLOBAL = 0;
const NAMESPACE = 1;

const WIRE_VARINT = 0;
const WIRE_64 = 1;
const WIRE_BYTES = 2;
const WIRE_32 = 5;
const MAX_VARINT_BYTES = 10;
const VARINT_BASE = 128;

/**
 * Whom a policy binds by its scope; null bytes are a policy without contents. A scope that cannot be read reaches as far as a
 * policy can. One that is not known here, or that binds by selector, reaches nobody by itself.
 */
export function reachOf(bytes: Uint8Array | null): Reach {
  if (bytes === null) return REACHES_ALL;
  const { scope, namespace } = readTop(bytes);
  if (scope === GLOBAL) return REACHES_ALL;
  return scope === NAMESPACE ? namespace : null;
}

/** The two fields as far as the bytes can be read, absent ones with the values that stands for. */
function readTop(bytes: Uint8Array): { readonly scope: number; readonly namespace: string } {
  let scope = GLOBAL;
  let namespace = '';
  const cursor = new Cursor(bytes);
  for (;;) {
    const tag = cursor.varint();
    if (tag === null) return { scope, namespace };
    const field = Math.floor(tag / 8);
    const value = cursor.value(tag % 8);
    if (value === null) return { scope, namespace };
    if (field === SCOPE_FIELD && typeof value === 'number') scope = value;
    if (field === NAMESPACE_FIELD && typeof value !== 'number') {
      namespace = new TextDecoder().decode(value);
    }
  }
}

/** Reads a message field by field; null at its end and where it cannot be read. */
class Cursor {
  readonly #bytes: Uint8Array;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  varint(): number | null {
    let value = 0;
    let factor = 1;
    for (let count = 0; count < MAX_VARINT_BYTES; count += 1) {
      const byte = this.#bytes[this.#at];
      if (byte === undefined) return null;
      this.#at += 1;
      value += (byte % VARINT_BASE) * factor;
      if (byte < VARINT_BASE) return value;
      factor *= VARINT_BASE;
    }
    return null;
  }

  value(wireType: number): number | Uint8Array | null {
    switch (wireType) {
      case WIRE_VARINT:
        return this.varint();
      case WIRE_64:
        return this.#take(8);
      case WIRE_BYTES: {
        const length = this.varint();
        return length === null ? null : this.#take(length);
      }
      case WIRE_32:
        return this.#take(4);
      default:
        return null;
    }
  }

  #take(length: number): Uint8Array | null {
    const end = this.#at + length;
    if (end > this.#bytes.length) return null;
    const taken = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return taken;
  }
}
