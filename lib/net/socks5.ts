/** The server's side of SOCKS5 without authentication (RFC 1928), CONNECT only. Pure. It accepts any bytes and never throws. */
import { formatIp } from './address.ts';

/** The destination that a client asks for. */
export type SocksTarget =
  | { readonly kind: 'ip'; readonly ip: string; readonly port: number }
  /** As sent, not empty, printable ASCII. */
  | { readonly kind: 'name'; readonly name: string; readonly port: number };

/** The next step of a negotiation. */
export type SocksStep =
  /** More bytes are needed. */
  | { readonly kind: 'more' }
  /** Send the bytes and go on reading. */
  | { readonly kind: 'send'; readonly bytes: Buffer }
  /** The request is complete; `rest` came behind it and is data of the connection. */
  | { readonly kind: 'request'; readonly target: SocksTarget; readonly rest: Buffer }
  /** The client is not served, for this reason. */
  | { readonly kind: 'refuse'; readonly reason: string };

/** Reply codes: general failure, host unreachable, not supported. */
export const SOCKS_FAILURE = { general: 1, unreachable: 4, unsupported: 7 } as const;

/** A reply code of a refused request. */
export type SocksFailure = (typeof SOCKS_FAILURE)[keyof typeof SOCKS_FAILURE];

const VERSION = 5;
const NO_AUTHENTICATION = 0;
const CONNECT = 1;
const ADDRESS = { v4: 1, name: 3, v6: 4 } as const;
const PRINTABLE = /^[\x21-\x7e]+$/;

/** The reply that grants a request. */
export function socksGranted(): Buffer {
  return reply(0);
}

/** The reply that refuses one. */
export function socksRefused(code: SocksFailure): Buffer {
  return reply(code);
}

/** One negotiation. It holds at most a greeting or a request, both under 300 octets, and the bytes just pushed. */
export class SocksNegotiation {
  #held: Buffer = Buffer.alloc(0);
  #greeted = false;

  /** Takes bytes; call {@link next} until it wants more. */
  push(bytes: Buffer): void {
    this.#held = this.#held.length === 0 ? bytes : Buffer.concat([this.#held, bytes]);
  }

  /** The next step. After `request` and `refuse` the negotiation is over. */
  next(): SocksStep {
    return this.#greeted ? this.#request() : this.#greeting();
  }

  #greeting(): SocksStep {
    const [version, count] = this.#held;
    if (version !== undefined && version !== VERSION) return refuse('the version is not 5');
    if (count === undefined) return { kind: 'more' };
    if (count === 0) return refuse('no authentication method is offered');
    if (this.#held.length < 2 + count) return { kind: 'more' };
    const methods = this.#held.subarray(2, 2 + count);
    if (!methods.includes(NO_AUTHENTICATION)) return refuse('authentication is not supported');
    this.#held = this.#held.subarray(2 + count);
    this.#greeted = true;
    return { kind: 'send', bytes: Buffer.of(VERSION, NO_AUTHENTICATION) };
  }

  #request(): SocksStep {
    const bytes = this.#held;
    const [version, command, , type, first] = bytes;
    if (version !== undefined && version !== VERSION) return refuse('the version is not 5');
    if (command !== undefined && command !== CONNECT) return refuse('only CONNECT is supported');
    if (type === undefined) return { kind: 'more' };
    if (type === ADDRESS.v4) return this.#ip(4);
    if (type === ADDRESS.v6) return this.#ip(16);
    if (type !== ADDRESS.name) return refuse('the address type is not known');
    if (first === undefined) return { kind: 'more' };
    const end = 5 + first + 2;
    if (bytes.length < end) return { kind: 'more' };
    const name = bytes.toString('latin1', 5, 5 + first);
    if (!PRINTABLE.test(name)) return refuse('the name is empty or has strange characters');
    return this.#done({ kind: 'name', name, port: bytes.readUInt16BE(end - 2) }, end);
  }

  #ip(length: 4 | 16): SocksStep {
    const end = 4 + length + 2;
    if (this.#held.length < end) return { kind: 'more' };
    const ip = formatIp(this.#held.subarray(4, 4 + length));
    return this.#done({ kind: 'ip', ip, port: this.#held.readUInt16BE(end - 2) }, end);
  }

  #done(target: SocksTarget, end: number): SocksStep {
    return { kind: 'request', target, rest: this.#held.subarray(end) };
  }
}

function refuse(reason: string): SocksStep {
  return { kind: 'refuse', reason };
}

/** A reply with an unspecified address: the client has no use for the address that the proxy binds. */
function reply(code: number): Buffer {
  return Buffer.of(VERSION, code, 0, ADDRESS.v4, 0, 0, 0, 0, 0, 0);
}
