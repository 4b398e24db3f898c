/** TLS gRPC servers of the infrastructure actors (ca, control-plane). */
import { Server, ServerCredentials } from '@grpc/grpc-js';
import type { ServerOptions } from '@grpc/grpc-js';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import type { Endpoint } from '../config/fields.ts';
import { DEFAULT_TLS_POLICY, servingParameters } from '../tls/parameters.ts';
import type { ServingCertificate, TlsPolicy } from '../tls/parameters.ts';

/**
 * Server credentials with a replaceable certificate: new connections get the new one, open ones continue. They request no
 * client certificate, because callers authenticate by token.
 */
export class RotatingServerCredentials extends ServerCredentials {
  readonly #tls: TlsPolicy;

  constructor(certificate: ServingCertificate, tls: TlsPolicy = DEFAULT_TLS_POLICY) {
    super({}, servingParameters(certificate, tls));
    this.#tls = tls;
  }

  /** Uses this certificate for new connections. */
  rotate(certificate: ServingCertificate): void {
    this.updateSecureContextOptions(servingParameters(certificate, this.#tls));
  }

  override _equals(other: ServerCredentials): boolean {
    return other === this;
  }
}

/** Istio's ping interval (docs/spec/control.md §1); a dead client is noticed within 30 s. */
const PING_INTERVAL_MS = 20_000;
const PING_TIMEOUT_MS = 10_000;

/** Makes a server with the mesh's keepalive and size limits; `extra` adds or overrides gRPC options. */
export function createGrpcServer(maxReceiveBytes: number, extra: ServerOptions = {}): Server {
  return new Server({
    'grpc.keepalive_time_ms': PING_INTERVAL_MS,
    'grpc.keepalive_timeout_ms': PING_TIMEOUT_MS,
    'grpc.max_receive_message_length': maxReceiveBytes,
    ...extra,
  });
}

/** Binds the server; resolves with the port. Throws CONFIG_INVALID that names the address. */
export function bindGrpcServer(
  server: Server,
  address: Endpoint,
  credentials: ServerCredentials,
): Promise<number> {
  return new Promise((resolve, reject) => {
    const target = bindTarget(address);
    server.bindAsync(target, credentials, (error, port) => {
      if (error === null) resolve(port);
      else {
        reject(
          new MeshError('CONFIG_INVALID', `cannot listen on ${target}: ${errorText(error)}`, {
            cause: error,
          }),
        );
      }
    });
  });
}

function bindTarget(address: Endpoint): string {
  if (address.kind === 'unix') return `unix:${address.path}`;
  // No host means every address of both families.
  const host = address.host === '' ? '::' : address.host;
  return host.includes(':') ? `[${host}]:${address.port}` : `${host}:${address.port}`;
}

/** Ends a server: it refuses new calls, and cuts open ones when `signal` aborts. Resolves when all calls have ended. */
export function shutDownGrpcServer(server: Server, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const force = (): void => server.forceShutdown();
    server.tryShutdown(() => {
      // The only error is that the server was not running.
      signal.removeEventListener('abort', force);
      resolve();
    });
    if (signal.aborted) force();
    else signal.addEventListener('abort', force, { once: true });
  });
}
