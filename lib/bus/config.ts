import { makeField, text } from '../config/fields.ts';
import type { ConfigVariable } from '../config/spec.ts';

/** The address of Redis. */
export type RedisEndpoint =
  | { readonly kind: 'unix'; readonly path: string }
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number; readonly tls: boolean }
  | {
      /** Sentinels tell which server is the master of this name. */
      readonly kind: 'sentinel';
      readonly sentinels: readonly HostPort[];
      readonly master: string;
      readonly tls: boolean;
    }
  | {
      /** Some servers of the cluster; the first that answers tells of the others. */
      readonly kind: 'cluster';
      readonly nodes: readonly HostPort[];
      readonly tls: boolean;
    };

/** A server by name or address. */
export interface HostPort {
  readonly host: string;
  readonly port: number;
}

/** Configuration of a process's connections to Redis. Plain data; the password stays in its file. */
export interface BusConfig {
  readonly endpoint: RedisEndpoint;
  readonly username: string | null;
  readonly passwordFile: string | null;
  /** PEM bundle for `rediss://`; the system's roots when null. */
  readonly caFile: string | null;
  /** First part of every key. */
  readonly prefix: string;
}

const REDIS_PORT = 6_379;
const SENTINEL_PORT = 26_379;

/** Longest path of a unix socket (sun_path of sockaddr_un, less its final zero). */
const UNIX_PATH_BYTES_MAX = 107;

/**
 * `unix:///path`, `redis://host[:port]`, `redis+sentinel://host[:port],…/master` or `redis+cluster://host[:port],…`; with
 * TLS `rediss:`, `rediss+sentinel:` and `rediss+cluster:`. Throws an Error that says what is wrong.
 */
export function parseRedisUrl(url: string): RedisEndpoint {
  const expected =
    'must be unix:///path, redis://host:port, rediss://host:port, redis+sentinel://host:port,…/master or redis+cluster://host:port,…';
  if (url.startsWith('unix:')) {
    const path = url.replace(/^unix:(\/\/)?/, '');
    if (!path.startsWith('/')) throw new Error(expected);
    if (Buffer.byteLength(path) > UNIX_PATH_BYTES_MAX) {
      throw new Error(`is a socket path longer than ${UNIX_PATH_BYTES_MAX} bytes`);
    }
    return { kind: 'unix', path };
  }
  if (/^rediss?\+sentinel:/.test(url)) return parseSentinelUrl(url, expected);
  if (/^rediss?\+cluster:/.test(url)) return parseClusterUrl(url, expected);
  const parsed = URL.canParse(url) ? new URL(url) : null;
  if (parsed === null || !['redis:', 'rediss:'].includes(parsed.protocol))
    throw new Error(expected);
  if (parsed.username !== '' || parsed.password !== '') {
    throw new Error('must not hold credentials: use REDIS_USERNAME and REDIS_PASSWORD_FILE');
  }
  if (parsed.hostname === '' || !['', '/'].includes(parsed.pathname)) throw new Error(expected);
  return {
    kind: 'tcp',
    host: parsed.hostname.replace(/^\[|\]$/g, ''),
    port: parsed.port === '' ? REDIS_PORT : Number(parsed.port),
    tls: parsed.protocol === 'rediss:',
  };
}

function parseSentinelUrl(url: string, expected: string): RedisEndpoint {
  const [, scheme = '', hosts = '', master = ''] =
    /^(rediss?)\+sentinel:\/\/([^/@]+)\/([A-Za-z0-9._-]+)$/.exec(url) ?? [];
  if (hosts === '') throw new Error(expected);
  const sentinels = parseHosts(hosts, SENTINEL_PORT, expected);
  return { kind: 'sentinel', sentinels, master, tls: scheme === 'rediss' };
}

function parseClusterUrl(url: string, expected: string): RedisEndpoint {
  const [, scheme = '', hosts = ''] = /^(rediss?)\+cluster:\/\/([^/@]+)\/?$/.exec(url) ?? [];
  if (hosts === '') throw new Error(expected);
  const nodes = parseHosts(hosts, REDIS_PORT, expected);
  return { kind: 'cluster', nodes, tls: scheme === 'rediss' };
}

function parseHosts(text: string, defaultPort: number, expected: string): readonly HostPort[] {
  return text.split(',').map((item) => {
    const one = URL.canParse(`redis://${item}`) ? new URL(`redis://${item}`) : null;
    if (one === null || one.hostname === '') throw new Error(expected);
    return {
      host: one.hostname.replace(/^\[|\]$/g, ''),
      port: one.port === '' ? defaultPort : Number(one.port),
    };
  });
}

const redisUrl = makeField(parseRedisUrl);

const keyPrefix = makeField((value) => {
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(value)) throw new Error('must be 1 to 64 of A-Z a-z 0-9 _ -');
  return value;
});

/** Variables of every actor that uses the bus; {@link busConfig} shapes their parsed values. */
export const busVariables = {
  REDIS_URL: {
    schema: redisUrl(),
    description:
      'Redis: unix:///path, redis://host:port, redis+sentinel://host:port,host:port/master or redis+cluster://host:port,host:port; rediss://, rediss+sentinel:// and rediss+cluster:// with TLS',
  },
  REDIS_USERNAME: { schema: text({ optional: true }), description: 'Redis ACL user' },
  REDIS_PASSWORD_FILE: {
    schema: text({ optional: true }),
    description: 'file that holds the password of the Redis user',
  },
  REDIS_CA_FILE: {
    schema: text({ optional: true }),
    description: 'PEM roots for TLS to Redis; default the roots of the system',
  },
  WEFT_REDIS_PREFIX: {
    schema: keyPrefix({ default: 'weft' }),
    description: 'first part of every Redis key',
    when: 'several meshes share one Redis',
  },
} as const satisfies Record<string, ConfigVariable>;

/** The parsed values of {@link busVariables}. */
export interface BusValues {
  readonly REDIS_URL: RedisEndpoint;
  readonly REDIS_USERNAME: string | null;
  readonly REDIS_PASSWORD_FILE: string | null;
  readonly REDIS_CA_FILE: string | null;
  readonly WEFT_REDIS_PREFIX: string;
}

/** The configuration in the values of {@link busVariables}. */
export function busConfig(values: BusValues): BusConfig {
  return {
    endpoint: values.REDIS_URL,
    username: values.REDIS_USERNAME,
    passwordFile: values.REDIS_PASSWORD_FILE,
    caFile: values.REDIS_CA_FILE,
    prefix: values.WEFT_REDIS_PREFIX,
  };
}
