/** Channels to the control plane and the CA (docs/spec/control.md §1). */
import { isIP } from 'node:net';
import { callbackify } from 'node:util';
import { CallCredentials, Client, Metadata, credentials } from '@grpc/grpc-js';
import { MeshError } from '../errors/mesh-error.ts';
import { RootsCredentials } from './credentials.ts';
import { parseRootSource } from '../tls/roots.ts';
import { DEFAULT_TLS_POLICY } from '../tls/parameters.ts';
import type { TlsPolicy } from '../tls/parameters.ts';
import { tokenSource } from './token-source.ts';
import type { TokenSource } from './token-source.ts';

/** Address and credentials of a connection to the control plane or the CA. */
export interface GrpcClientOptions {
  /** `https://host:port`; the scheme may be left out. Plain `http` is refused because it would expose the token. */
  readonly address: string;
  /** `XDS_ROOT_CA` / `CA_ROOT_CA`: a path (read on every connection), `SYSTEM`, or PEM. */
  readonly rootCa: string;
  /** A second name the server's certificate may carry; null for none. */
  readonly altHostname: string | null;
  /** `AUTH_TOKEN`: a path (read for every request) or a token; null for the default file or none. */
  readonly authToken: string | null;
  /** Sent as `clusterid`. */
  readonly clusterId: string;
  /** Extra metadata from `XDS_HEADER_*` / `CA_HEADER_*`, by lower-case name. */
  readonly headers: Readonly<Record<string, string>>;
  /** TLS rules; default {@link DEFAULT_TLS_POLICY}. */
  readonly tls?: TlsPolicy;
  /** Largest accepted message. */
  readonly maxReceiveBytes: number;
}

/** A client that tells how far its connection has come. */
export class SecureClient extends Client {
  readonly #credentials: RootsCredentials;

  constructor(
    channel: RootsCredentials,
    ...[address, all, options]: ConstructorParameters<typeof Client>
  ) {
    super(address, all, options);
    this.#credentials = channel;
  }

  /** See {@link RootsCredentials.handshaking}. */
  get handshaking(): boolean {
    return this.#credentials.handshaking;
  }
}

const PING_INTERVAL_MS = 30_000;
const PING_TIMEOUT_MS = 10_000;

/** Backoff of the channel's own connection attempts; callers have a slower one. */
const RECONNECT_MIN_MS = 100;
const RECONNECT_MAX_MS = 2_000;

/**
 * Opens a client that reads the trust roots for every connection and the token for every request. The caller closes it.
 * Throws CONFIG_INVALID for a bad address.
 */
export function openGrpcClient(options: GrpcClientOptions): SecureClient {
  const { host, port } = parseServerAddress(options.address);
  const channel = new RootsCredentials({
    roots: parseRootSource(options.rootCa),
    host,
    altHostname: options.altHostname,
    tls: options.tls ?? DEFAULT_TLS_POLICY,
  });
  const metadata = requestMetadata(tokenSource(options.authToken), options);
  const authority = isIP(host) === 6 ? `[${host}]:${port}` : `${host}:${port}`;
  return new SecureClient(
    channel,
    `dns:///${authority}`,
    credentials.combineChannelCredentials(channel, metadata),
    {
      'grpc.default_authority': authority,
      'grpc.use_local_subchannel_pool': 1,
      'grpc.enable_http_proxy': 0,
      'grpc.enable_retries': 0,
      'grpc.service_config_disable_resolution': 1,
      'grpc.keepalive_time_ms': PING_INTERVAL_MS,
      'grpc.keepalive_timeout_ms': PING_TIMEOUT_MS,
      'grpc.keepalive_permit_without_calls': 1,
      'grpc.initial_reconnect_backoff_ms': RECONNECT_MIN_MS,
      'grpc.max_reconnect_backoff_ms': RECONNECT_MAX_MS,
      'grpc.max_receive_message_length': options.maxReceiveBytes,
    },
  );
}

/** Returns host (without brackets) and port. Throws CONFIG_INVALID, and CONFIG_UNSUPPORTED for `http`. */
export function parseServerAddress(address: string): { host: string; port: number } {
  const text = address.includes('://') ? address : `https://${address}`;
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url?.protocol === 'http:') {
    throw new MeshError(
      'CONFIG_UNSUPPORTED',
      `${address}: plain http is not supported, because it would expose the token`,
    );
  }
  if (url === null || url.protocol !== 'https:' || url.hostname === '' || url.pathname !== '/') {
    throw new MeshError(
      'CONFIG_INVALID',
      `must be https://host:port, got ${JSON.stringify(address)}`,
    );
  }
  const host = url.hostname.replace(/^\[|\]$/g, '');
  return { host, port: url.port === '' ? 443 : Number(url.port) };
}

/** Returns the values of `<prefix><name>` variables by lower-case name. Throws CONFIG_INVALID for an unusable one. */
export function headersFromEnvironment(
  environment: Readonly<Record<string, string | undefined>>,
  prefix: 'XDS_HEADER_' | 'CA_HEADER_',
): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const [name, value] of Object.entries(environment)) {
    if (!name.startsWith(prefix) || value === undefined) continue;
    const key = name.slice(prefix.length).toLowerCase();
    if (!/^[0-9a-z_.-]+$/.test(key) || key.endsWith('-bin') || /[^\x20-\x7e]/.test(value)) {
      throw new MeshError('CONFIG_INVALID', `${name} is not a usable gRPC metadata entry`);
    }
    headers[key] = value;
  }
  return headers;
}

function requestMetadata(token: TokenSource | null, options: GrpcClientOptions): CallCredentials {
  const build = callbackify(() => buildMetadata(token, options));
  return CallCredentials.createFromMetadataGenerator((_request, callback) => build(callback));
}

async function buildMetadata(
  token: TokenSource | null,
  options: GrpcClientOptions,
): Promise<Metadata> {
  const metadata = new Metadata();
  if (token !== null) {
    metadata.set('authorization', `Bearer ${await token()}`);
    metadata.set('clusterid', options.clusterId);
  }
  for (const [name, value] of Object.entries(options.headers)) metadata.set(name, value);
  return metadata;
}
