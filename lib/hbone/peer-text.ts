/** Text that a peer chooses: cut where it enters, so that nothing behind can be made to keep, count or log more of it. */

/** Header fields of a request or an answer, names in lower case. */
export type PeerHeaders = Readonly<Record<string, string | undefined>>;

/** A host name of 253 characters, its trailing dot, a colon and a port; a longer authority is refused. */
export const MAX_AUTHORITY_LENGTH = 260;

/** The longest value of one baggage member: that of any name in Kubernetes or DNS. */
export const MAX_BAGGAGE_VALUE_LENGTH = 253;

/** What W3C Baggage asks every party to carry; a longer header counts as absent. */
export const MAX_BAGGAGE_LENGTH = 8_192;

/** Ten proxies in a row, each with two addresses; a longer header is refused, as its end is what counts. */
export const MAX_FORWARDED_LENGTH = 1_024;

/** Enough of a method to name it in a message. */
const MAX_METHOD_LENGTH = 32;

/** The header fields that are read at all. One more character than is taken tells that there were more. */
const READ = [
  ['baggage', MAX_BAGGAGE_LENGTH + 1],
  ['forwarded', MAX_FORWARDED_LENGTH + 1],
  ['traceparent', 56],
  ['x-forwarded-network', 254],
] as const;

/** Those of no request: what is answered needs its own no more. */
export const NO_HEADERS: PeerHeaders = Object.freeze({});

/** A text of at most `length` characters that keeps no longer one alive, as a slice would. */
export function cutText(text: string, length: number): string {
  return text.length <= length ? text : ownText(text, length);
}

/** The same, for a text that is itself a part of a longer one. */
export function ownText(text: string, length: number): string {
  return Buffer.from(text.slice(0, length)).toString();
}

/** A request's authority; cut, it is still longer than {@link MAX_AUTHORITY_LENGTH}. */
export function cutAuthority(text: string): string {
  return cutText(text, MAX_AUTHORITY_LENGTH + 1);
}

/** A request's method. */
export function cutMethod(text: string): string {
  return cutText(text, MAX_METHOD_LENGTH);
}

/** The fields of a header map that are read, each cut to one character more than its longest. */
export function readHeaders(all: PeerHeaders): PeerHeaders {
  const kept: Record<string, string> = {};
  for (const [name, length] of READ) {
    const value = all[name];
    if (value !== undefined) kept[name] = cutText(value, length);
  }
  return kept;
}
