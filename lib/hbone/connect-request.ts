/** Writes and parses the headers of a CONNECT request (docs/spec/hbone.md §5). */
import { randomFillSync } from 'node:crypto';
import { formatHostPort, tryCanonicalIp, tryParseHostPort } from '../net/address.ts';
import type { Workload } from '../state/model.ts';
import { formatBaggage } from './baggage.ts';

/** Hexadecimal ids that connect the log lines of the two ends. */
export interface TraceContext {
  readonly traceId: string;
  readonly spanId: string;
}

/** The facts that the request headers carry. */
export interface ConnectFacts {
  readonly sourceIp: string;
  readonly sourcePort: number;
  readonly sourceWorkload: Workload;
  /** Hostname of the service that the client addressed, null when it addressed none. */
  readonly serviceHostname: string | null;
  readonly trace: TraceContext;
}

const TRACE_ID_BYTES = 16;
const SPAN_ID_BYTES = 8;
/** Traces that one draw of random bytes serves: three kilobytes. */
const TRACES_DRAWN_AT_ONCE = 128;
const TRACEPARENT_LENGTH = 55;
const TRACEPARENT = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/i;
const HOST = /host=/i;
const ASCII = /^[\x20-\x7e]*$/;
/** A name of 253 characters, with a trailing dot. */
const MAX_HOST_LENGTH = 254;

/** Random bytes for the next ids. One draw for each id would cost more than everything else about it. */
const random = Buffer.alloc(TRACES_DRAWN_AT_ONCE * (TRACE_ID_BYTES + SPAN_ID_BYTES));
let randomUsed = random.length;

/** Fresh random ids. */
export function newTrace(): TraceContext {
  if (randomUsed === random.length) {
    randomFillSync(random);
    randomUsed = 0;
  }
  const end = randomUsed + TRACE_ID_BYTES + SPAN_ID_BYTES;
  const text = random.toString('hex', randomUsed, end);
  randomUsed = end;
  return { traceId: text.slice(0, 2 * TRACE_ID_BYTES), spanId: text.slice(2 * TRACE_ID_BYTES) };
}

/** The W3C header; flags are always 00. */
export function formatTraceparent(trace: TraceContext): string {
  return `00-${trace.traceId}-${trace.spanId}-00`;
}

/** Parses the ids of a header; null when it is absent or malformed. */
export function parseTraceparent(header: string | undefined): TraceContext | null {
  if (header?.length !== TRACEPARENT_LENGTH) return null;
  if (!TRACEPARENT.test(header)) return null;
  return { traceId: header.slice(3, 35), spanId: header.slice(36, 52) };
}

/** The `forwarded` header. */
export function formatForwarded(ip: string, port: number, serviceHostname: string | null): string {
  const source = `for="${formatHostPort(ip, port)}"`;
  return serviceHostname === null ? source : `${source};host=${serviceHostname}`;
}

/** The `host=` of a `forwarded` header, null when there is none or it is too long for a host name. */
export function parseForwardedHost(header: string | undefined): string | null {
  // Most name none, which costs no cutting.
  if (header === undefined || !HOST.test(header)) return null;
  const host = forwardedPart(header, 'host=');
  return host === null || host.length > MAX_HOST_LENGTH ? null : host;
}

/**
 * The client in the `for=` of a `forwarded` header, null when it names no address. The port is 0 if the header has none. The last of
 * several elements counts, because the peer itself has added it.
 */
export function parseForwardedFor(
  header: string | undefined,
): { readonly ip: string; readonly port: number } | null {
  const last = header?.split(',').at(-1);
  const client = last === undefined ? null : forwardedPart(last, 'for=');
  if (client === null) return null;
  const alone = tryCanonicalIp(client.replace(/^\[(.*)\]$/, '$1'));
  if (alone !== null) return { ip: alone, port: 0 };
  const parsed = tryParseHostPort(client);
  const ip = parsed === null ? null : tryCanonicalIp(parsed.host);
  return parsed === null || ip === null ? null : { ip, port: parsed.port };
}

function forwardedPart(element: string, name: string): string | null {
  if (!ASCII.test(element)) return null;
  const part = element
    .split(';')
    .map((text) => text.trim())
    .find((text) => text.toLowerCase().startsWith(name));
  const value = part?.slice(name.length).replace(/^"+|"+$/g, '');
  return value === undefined || value === '' ? null : value;
}

/** Names the sender's network to a receiver that sees only a gateway's address (docs/spec/hbone.md §5). */
export const FORWARDED_NETWORK = 'x-forwarded-network';

/** The headers of a request inside a tunnel to another network. */
export function innerHeaders(
  headers: Readonly<Record<string, string>>,
  network: string,
): Record<string, string> {
  return { ...headers, [FORWARDED_NETWORK]: network };
}

/** All headers of a request. */
export function connectHeaders(facts: ConnectFacts): Record<string, string> {
  return {
    baggage: formatBaggage(facts.sourceWorkload),
    forwarded: formatForwarded(facts.sourceIp, facts.sourcePort, facts.serviceHostname),
    traceparent: formatTraceparent(facts.trace),
  };
}
