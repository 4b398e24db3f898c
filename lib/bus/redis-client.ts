import { readFileSync } from 'node:fs';
import { Redis } from 'ioredis';
import type { RedisOptions } from 'ioredis';
import { MeshError, asMeshError, errorText } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';
import type { BusConfig } from './config.ts';
import { BLOCKING_SILENCE_MS, COMMAND_TIMEOUT_MS } from './limits.ts';

/** What a connection is for. Blocking reads and subscriptions never share one with commands. */
export type ConnectionPurpose = 'commands' | 'blocking' | 'subscriptions' | 'producer' | 'consumer';

const RECONNECT_FIRST_MS = 50;
const RECONNECT_MAX_MS = 2_000;
const CONNECT_TIMEOUT_MS = 5_000;
const TCP_KEEPALIVE_MS = 10_000;

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
): Redis {
  const client = new Redis({
    ...endpointOptions(config),
    connectionName: `${name}:${purpose}`.replaceAll(' ', '_'),
    ...(config.username === null ? {} : { username: config.username }),
    ...passwordOption(config),
    protocol: 2,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    ...purposeOptions(purpose),
    connectTimeout: CONNECT_TIMEOUT_MS,
    keepAlive: TCP_KEEPALIVE_MS,
    retryStrategy: (attempt: number) => {
      // The password may have been rotated since.
      refreshPassword(client, config, log);
      return reconnectDelay(attempt);
    },
    // A master that a failover made a replica: ask the sentinels again instead of failing every write.
    reconnectOnError: (error) => error.message.startsWith('READONLY'),
    // Replies in one shape, whatever the server speaks.
    replyMapping: 'legacy',
  });
  let lastError = '';
  client.on('error', (error) => {
    // The same failure of every attempt is one line, until it connects again.
    const text = errorText(error);
    if (text === lastError) return;
    lastError = text;
    log.warn({ purpose, error: text }, 'bus.connection-error');
  });
  client.on('ready', () => {
    lastError = '';
  });
  return client;
}

function reconnectDelay(attempt: number): number {
  const delay = Math.min(RECONNECT_MAX_MS, RECONNECT_FIRST_MS * 2 ** Math.min(attempt, 10));
  return delay * (0.8 + 0.4 * Math.random());
}

function endpointOptions(config: BusConfig): RedisOptions {
  const { endpoint } = config;
  if (endpoint.kind === 'unix') return { path: endpoint.path };
  const ca = config.caFile === null ? {} : { ca: readConfigured(config.caFile, 'REDIS_CA_FILE') };
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

function purposeOptions(purpose: ConnectionPurpose): RedisOptions {
  switch (purpose) {
    case 'commands':
      return { maxRetriesPerRequest: 0, commandTimeout: COMMAND_TIMEOUT_MS };
    case 'subscriptions':
      // Who subscribes does it again on every connection.
      return { maxRetriesPerRequest: 0, autoResubscribe: false };
    case 'blocking':
      return { maxRetriesPerRequest: 0, socketTimeout: BLOCKING_SILENCE_MS };
    case 'producer':
      return { maxRetriesPerRequest: 0, commandTimeout: COMMAND_TIMEOUT_MS };
    case 'consumer':
      // BullMQ's workers expect commands to wait for the connection; how many wait is bounded by their concurrency.
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

function refreshPassword(client: Redis, config: BusConfig, log: Logger): void {
  try {
    Object.assign(client.options, passwordOption(config));
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

/** An error of a Redis command as BUS_UNAVAILABLE that says what was tried; a MeshError stays itself. */
export function asBusError(error: unknown, what: string): MeshError {
  return asMeshError(error, 'BUS_UNAVAILABLE', what);
}

/** Resolves when the client is ready; rejects with the signal's reason when it aborts first. */
export function whenReady(client: Redis, signal: AbortSignal): Promise<void> {
  if (client.status === 'ready') return Promise.resolve();
  return new Promise((resolve, reject) => {
    const finish = (): void => {
      client.off('ready', ready);
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
    client.on('ready', ready);
    signal.addEventListener('abort', abort, { once: true });
    if (signal.aborted) abort();
  });
}
