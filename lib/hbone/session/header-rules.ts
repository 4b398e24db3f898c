/** Checks that header lists are well-formed (RFC 9113 §8). */
import type { Field } from './hpack-table.ts';

/** Header fields as one text each, repeated ones joined by a comma. */
export type HeaderMap = Readonly<Record<string, string | undefined>>;

/** A well-formed request. */
export interface RequestHead {
  readonly method: string;
  readonly authority: string;
  /** All fields, including pseudo ones. */
  readonly headers: HeaderMap;
  /** The value of content-length, null when it is absent. */
  readonly contentLength: number | null;
}

/** A well-formed response. */
export interface ResponseHead {
  readonly status: number;
  readonly headers: HeaderMap;
}

/** RFC 9110 §5.6.2, without upper case. */
const NAME = /^[!#$%&'*+\-.^_`|~0-9a-z]+$/;
/** No control character but a tab within, no blank at an end. */
// oxlint-disable-next-line no-control-regex
const VALUE = /^(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?$/;
const DIGITS = /^\d{1,15}$/;

/** Fields that concern one hop of HTTP/1 (§8.2.2). */
const FORBIDDEN: ReadonlySet<string> = new Set([
  'connection',
  'proxy-connection',
  'keep-alive',
  'transfer-encoding',
  'upgrade',
]);

const REQUEST_PSEUDO: ReadonlySet<string> = new Set([':method', ':scheme', ':authority', ':path']);
const RESPONSE_PSEUDO: ReadonlySet<string> = new Set([':status']);
const NO_PSEUDO: ReadonlySet<string> = new Set();

/** The request in a list, or a text that names its fault. */
export function requestHead(fields: readonly Field[]): RequestHead | string {
  const headers = collect(fields, REQUEST_PSEUDO);
  if (typeof headers === 'string') return headers;
  const { ':method': method, ':scheme': scheme, ':path': path, ':authority': authority } = headers;
  if (method === undefined) return 'no :method';
  if (method === 'CONNECT') {
    if (scheme !== undefined || path !== undefined) return 'a CONNECT with :scheme or :path';
    if (authority === undefined) return 'a CONNECT without :authority';
  } else if (scheme === undefined || path === undefined || path === '') {
    return 'a request without :scheme or :path';
  }
  const length = headers['content-length'];
  if (length !== undefined && !DIGITS.test(length)) return 'a content-length that is no number';
  return {
    method,
    authority: authority ?? '',
    headers,
    contentLength: length === undefined ? null : Number(length),
  };
}

/** The response in a list, or a text that names its fault. */
export function responseHead(fields: readonly Field[]): ResponseHead | string {
  const headers = collect(fields, RESPONSE_PSEUDO);
  if (typeof headers === 'string') return headers;
  const status = headers[':status'] ?? '';
  if (!/^[1-9]\d\d$/.test(status)) return 'a response without a :status';
  return { status: Number(status), headers };
}

/** The fault of a list of trailers, null when it has none. */
export function trailersFault(fields: readonly Field[]): string | null {
  const trailers = collect(fields, NO_PSEUDO);
  return typeof trailers === 'string' ? trailers : null;
}

function collect(
  fields: readonly Field[],
  pseudo: ReadonlySet<string>,
): Record<string, string | undefined> | string {
  // Without a prototype: names come from the peer.
  const headers = Object.create(null) as Record<string, string | undefined>;
  let regular = false;
  for (const { name, value } of fields) {
    if (name.startsWith(':')) {
      if (regular) return 'a pseudo header after a header';
      if (!pseudo.has(name)) return `an unexpected ${JSON.stringify(name)}`;
      if (headers[name] !== undefined) return `a second ${name}`;
    } else {
      regular = true;
      const wrong = regularFault(name, value);
      if (wrong !== null) return wrong;
    }
    if (!VALUE.test(value)) return `a malformed value of ${JSON.stringify(name)}`;
    const before = headers[name];
    headers[name] = before === undefined ? value : `${before},${value}`;
  }
  return headers;
}

function regularFault(name: string, value: string): string | null {
  if (!NAME.test(name)) return `the malformed name ${JSON.stringify(name)}`;
  if (FORBIDDEN.has(name)) return `the header ${name}`;
  return name === 'te' && value !== 'trailers' ? 'a te other than trailers' : null;
}
