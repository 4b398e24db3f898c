import { isIP } from 'node:net';
import type { Socket } from 'node:net';
import { checkServerIdentity, connect } from 'node:tls';
import type { PeerCertificate } from 'node:tls';
import { CallCredentials, ChannelCredentials } from '@grpc/grpc-js';
import type { experimental } from '@grpc/grpc-js';
import { systemClock } from '../clock/clock.ts';
import { MeshError } from '../errors/mesh-error.ts';
import { readRoots } from '../tls/roots.ts';
import type { RootSource } from '../tls/roots.ts';
import { tlsParameters } from '../tls/parameters.ts';
import type { TlsPolicy } from '../tls/parameters.ts';

/** Whom to trust and which names the server may have. */
export interface RootsCredentialsOptions {
  readonly roots: RootSource;
  readonly host: string;
  readonly altHostname: string | null;
  readonly tls: TlsPolicy;
}

/** A server that accepts TCP but never finishes the handshake must not hold the channel. */
const HANDSHAKE_TIMEOUT_MS = 5_000;

/**
 * Channel credentials that read the trust roots for every connection, so that a rotated bundle is used from
 * the next connection on, and that accept the host's name or, failing that, the alternative one.
 */
export class RootsCredentials extends ChannelCredentials {
  readonly #options: RootsCredentialsOptions;

  constructor(options: RootsCredentialsOptions) {
    super();
    this.#options = options;
  }

  override _isSecure(): boolean {
    return true;
  }

  override _equals(other: ChannelCredentials): boolean {
    return other === this;
  }

  override _createSecureConnector(
    _target: unknown,
    _options: unknown,
    callCredentials?: CallCredentials,
  ): experimental.SecureConnector {
    const perCall = callCredentials ?? CallCredentials.createEmpty();
    return {
      connect: (socket) => secure(socket, this.#options),
      waitForReady: () => Promise.resolve(),
      getCallCredentials: () => perCall,
      // Nothing is held between connections.
      destroy: () => undefined,
    };
  }
}

async function secure(
  socket: Socket,
  options: RootsCredentialsOptions,
): Promise<experimental.SecureConnectResult> {
  const ca = await readRoots(options.roots);
  return new Promise((resolve, reject) => {
    const secured = connect({
      socket,
      ca,
      ALPNProtocols: ['h2'],
      ...tlsParameters(options.tls),
      // RFC 6066 allows no address as a server name.
      ...(isIP(options.host) === 0 ? { servername: options.host } : {}),
      checkServerIdentity: (_name, certificate) => checkNames(options, certificate),
    });
    const timer = systemClock.after(HANDSHAKE_TIMEOUT_MS, () =>
      secured.destroy(
        new MeshError('TLS_HANDSHAKE', 'the server did not finish the TLS handshake in time'),
      ),
    );
    secured.once('secureConnect', () => {
      timer.cancel();
      resolve({ socket: secured, secure: true });
    });
    // Stays attached: the transport adds its own listeners only after its next step.
    secured.on('error', (error) => {
      timer.cancel();
      reject(error);
    });
    secured.once('close', () => {
      timer.cancel();
      reject(
        new MeshError('TLS_HANDSHAKE', 'the server closed the connection during the TLS handshake'),
      );
    });
  });
}

function checkNames(
  options: RootsCredentialsOptions,
  certificate: PeerCertificate,
): Error | undefined {
  const refusal = checkServerIdentity(options.host, certificate);
  if (refusal === undefined || options.altHostname === null) return refusal;
  return checkServerIdentity(options.altHostname, certificate) === undefined ? undefined : refusal;
}
