import { readFileSync } from 'node:fs';
import type { Redis, RedisOptions } from 'ioredis';
import { MeshError, asMeshError, errorText } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';
import { ClusterClient } from './cluster-client.ts';
import type { BusConfig, RedisEndpoint } from './config.ts';
import { BLOCKING_SILENCE_MS, CLUSTER_RETRIES_MAX, COMMAND_TIMEOUT_MS } from './limits.ts';
import { ServerClient } from './server-client.ts';

/** Purpose of a connection. Blocking reads and subscriptions never share a connection with commands. */
export type ConnectionPurpose = 'commands' | 'blocking' | 'subscriptions' | 'producer' | 'consumer';

const RECONNECT_FIRST_MS = 50;
const RECONNECT_MAX_MS = 2_000;
const CONNECT_TIMEOUT_MS = 5_000;
const TCP_KEEPALIVE_MS = 10_000;

/** Interval of looks at the map of slots: a master that hangs does not report a change. */
const SLOTS_REFRESH_MS = 10_000;
const SLOTS_TIMEOUT_MS = 2_000;

/** Pause between attempts of a command that waits for a cluster. */
const CLUSTER_RETRY_MS = 250;

/** A client of one server, of a master that sentinels name, or of a cluster. */
export type RedisClient = Redis | ClusterClient;

/**
 * A client that reconnects for ever and never queues a command while Redis is away: the caller gets the error at once.
 * Its errors go to the log; the owner closes it with `disconnect()`. Throws CONFIG_INVALID when the password
 * file cannot be read.
 */
export function createClient(
  config: BusConfig,
  purpose: ConnectionPurpose,
  name: string,
  log: Logger,
): RedisClient {
  const options = {
    connectionName: `${name}:${purpose}`.replaceAll(' ', '_'),
    ...(config.username === null ? {} : { username: config.username }),
    ...passwordOption(config),
    protocol: 2 as const,
    autoResendUnfulfilledCommands: false,
    connectTimeout: CONNECT_TIMEOUT_MS,
    keepAlive: TCP_KEEPALIVE_MS,
  };
  const client =
    config.endpoint.kind === 'cluster'
      ? createClusterClient(config, config.endpoint, purpose, options, log)
      : createServerClient(config, config.endpoint, purpose, options, log);
  let lastError = '';
  const report = (error: unknown): void => {
    // Attempts that fail the same way log one line, until the client connects again.
    const text = errorText(error);
    if (text === lastError) return;
    lastError = text;
    log.warn({ purpose, error: text }, 'bus.connection-error');
  };
  client.on('error', report);
  client.on('node error', report);
  onLink(client, () => (lastError = ''));
  return client;
}

function createServerClient(
  config: BusConfig,
  endpoint: Exclude<RedisEndpoint, { kind: 'cluster' }>,
  purpose: ConnectionPurpose,
  common: RedisOptions,
  log: Logger,
): Redis {
  return new ServerClient({
    ...endpointOptions(config, endpoint),
    ...common,
    enableOfflineQueue: false,
    ...purposeOptions(purpose),
    retryStrategy(this: RedisOptions, attempt: number) {
      // The password may have been rotated. (ioredis calls this on the options of the connection, a copy's included.)
      refreshPassword(this, config, log);
      return reconnectDelay(attempt);
    },
    // A failover made the master a replica: ask the sentinels again instead of failing every write.
    reconnectOnError: (error) => error.message.startsWith('READONLY'),
    // Replies in one shape, whatever the server speaks.
    replyMapping: 'legacy',
  });
}

function createClusterClient(
  config: BusConfig,
  endpoint: Extract<RedisEndpoint, { kind: 'cluster' }>,
  purpose: ConnectionPurpose,
  common: RedisOptions,
  log: Logger,
): ClusterClient {
  const { enableOfflineQueue = false, ...serverOptions } = {
    ...common,
    ...purposeOptions(purpose),
  };
  return new ClusterClient({
    nodes: endpoint.nodes.map((node) => ({ ...node })),
    waits: enableOfflineQueue,
    beforeConnect: (server) => refreshPassword(server.options, config, log),
    delayMs: reconnectDelay,
    serverOptions: {
      ...serverOptions,
      ...(endpoint.tls ? { tls: tlsRoots(config) } : {}),
    },
    options: {
      // Queues commands while the connection to a server is made; while the cluster is away the client refuses them.
      enableOfflineQueue: true,
      // Keep names unresolved: the certificate of a server is for its name, if it has one.
      dnsLookup: (host, callback) => callback(null, host),
      slotsRefreshInterval: SLOTS_REFRESH_MS,
      slotsRefreshTimeout: SLOTS_TIMEOUT_MS,
      clusterRetryStrategy: reconnectDelay,
      ...(enableOfflineQueue
        ? {
            retryDelayOnFailover: CLUSTER_RETRY_MS,
            retryDelayOnClusterDown: CLUSTER_RETRY_MS,
            maxRedirections: CLUSTER_RETRIES_MAX,
          }
        : // Fail to the caller: a lost server may have done the command or not.
          { retryDelayOnFailover: 0, retryDelayOnClusterDown: 0 }),
    },
  });
}

/** True when commands may be sent. */
export function isLinked(client: RedisClient): boolean {
  return client instanceof ClusterClient ? client.linked : client.status === 'ready';
}

/**
 * Calls `linked` whenever the client has reached the server of its keys, and `lost` when it lost that server or another one took over.
 */
export function onLink(client: RedisClient, linked: () => void, lost?: () => void): void {
  const cluster = client instanceof ClusterClient;
  client.on(cluster ? 'linked' : 'ready', linked);
  if (lost !== undefined) client.on(cluster ? 'unlinked' : 'close', lost);
}

function reconnectDelay(attempt: number): number {
  const delay = Math.min(RECONNECT_MAX_MS, RECONNECT_FIRST_MS * 2 ** Math.min(attempt, 10));
  return delay * (0.8 + 0.4 * Math.random());
}

function endpointOptions(
  config: BusConfig,
  endpoint: Exclude<RedisEndpoint, { kind: 'cluster' }>,
): RedisOptions {
  if (endpoint.kind === 'unix') return { path: endpoint.path };
  const ca = tlsRoots(config);
  if (endpoint.kind === 'sentinel') {
    const { sentinels, master, tls } = endpoint;
    return {
      sentinels: sentinels.map((sentinel) => ({ ...sentinel })),
      name: master,
      sentinelRetryStrategy: (attempt) => reconnectDelay(attempt),
      ...(tls ? { enableTLSForSentinelMode: true, sentinelTLS: ca, tls: ca } : {}),
    };
  }
  const { host, port } = endpoint;
  if (!endpoint.tls) return { host, port };
  return { host, port, tls: { servername: host, ...ca } };
}

function tlsRoots(config: BusConfig): { ca?: string } {
  return config.caFile === null ? {} : { ca: readConfigured(config.caFile, 'REDIS_CA_FILE') };
}

function purposeOptions(purpose: ConnectionPurpose): RedisOptions {
  switch (purpose) {
    case 'commands':
      return { maxRetriesPerRequest: 0, commandTimeout: COMMAND_TIMEOUT_MS };
    case 'subscriptions':
      // Subscribers subscribe again on every connection.
      return { maxRetriesPerRequest: 0, autoResubscribe: false };
    case 'blocking':
      return { maxRetriesPerRequest: 0, socketTimeout: BLOCKING_SILENCE_MS };
    case 'producer':
      return { maxRetriesPerRequest: 0, commandTimeout: COMMAND_TIMEOUT_MS };
    case 'consumer':
      // BullMQ's workers expect commands to wait for the connection; their concurrency bounds how many wait.
      return {
        maxRetriesPerRequest: null,
        enableOfflineQueue: true,
        autoResendUnfulfilledCommands: true,
      };
  }
}

function passwordOption(config: BusConfig): RedisOptions {
  if (config.passwordFile === null) return {};
  return { password: readConfigured(config.passwordFile, 'REDIS_PASSWORD_FILE').trim() };
}

function refreshPassword(options: RedisOptions, config: BusConfig, log: Logger): void {
  try {
    Object.assign(options, passwordOption(config));
  } catch (error) {
    log.warn({ error: errorText(error) }, 'bus.password-unreadable');
  }
}

function readConfigured(path: string, variable: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new MeshError('CONFIG_INVALID', `${variable}: cannot read ${path}: ${errorText(error)}`, {
      cause: error,
    });
  }
}

/** Turns an error of a Redis command into BUS_UNAVAILABLE that names the attempted action; returns a MeshError unchanged. */
export function asBusError(error: unknown, what: string): MeshError {
  return asMeshError(error, 'BUS_UNAVAILABLE', what);
}

/** Resolves when the client has its server; rejects with the signal's reason when it aborts first. */
export function whenReady(client: RedisClient, signal: AbortSignal): Promise<void> {
  if (isLinked(client)) return Promise.resolve();
  const event = client instanceof ClusterClient ? 'linked' : 'ready';
  return new Promise((resolve, reject) => {
    const finish = (): void => {
      client.off(event, ready);
      signal.removeEventListener('abort', abort);
    };
    const ready = (): void => {
      finish();
      resolve();
    };
    const abort = (): void => {
      finish();
      reject(signal.reason instanceof Error ? signal.reason : new Error('aborted'));
    };
    client.on(event, ready);
    signal.addEventListener('abort', abort, { once: true });
    if (signal.aborted) abort();
  });
}
