/** Cuts text that a peer chooses where it enters, so that no later code keeps, counts or logs more of it. */

/** Header fields of a request or an answer, names in lower case. */
export type PeerHeaders = Readonly<Record<string, string | undefined>>;

/** A host name of 253 characters, its trailing dot, a colon and a port; a longer authority is refused. */
export const MAX_AUTHORITY_LENGTH = 260;

/** The longest value of a baggage member: the longest name in Kubernetes or DNS. */
export const MAX_BAGGAGE_VALUE_LENGTH = 253;

/** The length that W3C Baggage requires every party to carry. A longer header counts as absent. */
export const MAX_BAGGAGE_LENGTH = 8_192;

/** Room for ten proxies in a row, each with two addresses. A longer header is refused, because its end counts. */
export const MAX_FORWARDED_LENGTH = 1_024;

/** Characters of a method that a message names. */
const MAX_METHOD_LENGTH = 32;

/** The header fields that are read, and the length each is cut to: one more than its limit, which shows that it was longer. */
const READ = [
  ['baggage', MAX_BAGGAGE_LENGTH + 1],
  ['forwarded', MAX_FORWARDED_LENGTH + 1],
  ['traceparent', 56],
  ['x-forwarded-network', 254],
] as const;

/** The headers of an answered request, which needs its own no more. */
export const NO_HEADERS: PeerHeaders = Object.freeze({});

/** Cuts a text to `length` characters. A cut text does not keep the longer one alive, as a slice would. */
export function cutText(text: string, length: number): string {
  return text.length <= length ? text : ownText(text, length);
}

/** Copies at most `length` characters of a text that is a slice of a longer one. */
export function ownText(text: string, length: number): string {
  return Buffer.from(text.slice(0, length)).toString();
}

/** Cuts a request's authority. A cut one is still longer than {@link MAX_AUTHORITY_LENGTH}. */
export function cutAuthority(text: string): string {
  return cutText(text, MAX_AUTHORITY_LENGTH + 1);
}

/** Cuts a request's method. */
export function cutMethod(text: string): string {
  return cutText(text, MAX_METHOD_LENGTH);
}

/** The fields of a header map that are read, each cut to one character above its limit. */
export function readHeaders(all: PeerHeaders): PeerHeaders {
  const kept: Record<string, string> = {};
  for (const [name, length] of READ) {
    const value = all[name];
    if (value !== undefined) kept[name] = cutText(value, length);
  }
  return kept;
}
