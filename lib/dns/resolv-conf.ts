/** The resolver configuration of a machine (resolv.conf(5)). */
import { tryCanonicalIp } from '../net/address.ts';
import { MAX_NAME_SERVERS } from './limits.ts';
import { isHostName } from './request.ts';

/** The name servers to forward questions to, and how long to wait for answers. */
export interface ResolverConfig {
  /** Addresses, in order of preference. */
  readonly servers: readonly string[];
  /** Wait for one answer of one server. */
  readonly timeoutMs: number;
  /** Rounds over all servers. */
  readonly attempts: number;
  /** Whether questions go to the servers in turn. */
  readonly rotate: boolean;
  /** Suffixes of short names, in order and lower case. */
  readonly search: readonly string[];
  /** A name with this many dots is asked for as written before the suffixes are tried. */
  readonly ndots: number;
}

/** Defaults and bounds of resolv.conf(5). */
const DEFAULT_TIMEOUT_SECONDS = 5;
const MAX_TIMEOUT_SECONDS = 30;
const DEFAULT_ATTEMPTS = 2;
const MAX_ATTEMPTS = 5;
const MAX_SEARCH_DOMAINS = 32;
const DEFAULT_NDOTS = 1;
const MAX_NDOTS = 15;

/** Reads the text of a resolv.conf. It skips lines that it does not understand, as other resolvers do. */
export function parseResolvConf(text: string): ResolverConfig {
  const servers: string[] = [];
  let search: readonly string[] = [];
  const options = new Map<string, string>();
  for (const line of text.split('\n')) {
    const [keyword, ...values] = (line.split(/[#;]/)[0] ?? '').trim().split(/\s+/);
    if (keyword === 'nameserver') servers.push(...values.slice(0, 1).flatMap(serverAddress));
    if (keyword === 'search' || keyword === 'domain') search = values.map(domainOf);
    if (keyword !== 'options') continue;
    for (const option of values) {
      const [name, value] = option.split(':');
      options.set(name ?? '', value ?? '');
    }
  }
  return {
    servers: [...new Set(servers)].slice(0, MAX_NAME_SERVERS),
    timeoutMs:
      1_000 *
      within(options.get('timeout'), DEFAULT_TIMEOUT_SECONDS, {
        lowest: 1,
        highest: MAX_TIMEOUT_SECONDS,
      }),
    attempts: within(options.get('attempts'), DEFAULT_ATTEMPTS, {
      lowest: 1,
      highest: MAX_ATTEMPTS,
    }),
    rotate: options.has('rotate'),
    search: search.filter((domain) => domain !== '').slice(0, MAX_SEARCH_DOMAINS),
    ndots: within(options.get('ndots'), DEFAULT_NDOTS, { lowest: 0, highest: MAX_NDOTS }),
  };
}

/**
 * The names that a host name may stand for, in the order to ask for them (resolv.conf(5), `search` and `ndots`). A trailing dot
 * makes the name absolute. The names are in lower case and without a trailing dot; those that are no host names are left out.
 */
export function searchNames(
  hostname: string,
  { search, ndots }: Pick<ResolverConfig, 'search' | 'ndots'>,
): readonly string[] {
  const lower = hostname.toLowerCase();
  const name = lower.replace(/\.$/, '');
  if (name !== lower) return [name].filter(isHostName);
  const longer = search.map((domain) => `${name}.${domain}`);
  const dots = name.split('.').length - 1;
  const names = dots >= ndots ? [name, ...longer] : [...longer, name];
  return [...new Set(names)].filter(isHostName);
}

/** The canonical address in a list, or nothing. A link-local server names its interface, which means nothing in another namespace. */
function serverAddress(text: string): string[] {
  const address = tryCanonicalIp(text);
  return address === null ? [] : [address];
}

function domainOf(text: string): string {
  return text.toLowerCase().replace(/\.$/, '');
}

function within(
  text: string | undefined,
  fallback: number,
  { lowest, highest }: { readonly lowest: number; readonly highest: number },
): number {
  if (text === undefined || !/^\d{1,6}$/.test(text)) return fallback;
  return Math.min(highest, Math.max(lowest, Number(text)));
}
