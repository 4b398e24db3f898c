import type { X509Certificate } from 'node:crypto';
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

/** The trust roots and the names that the server may have. */
export interface RootsCredentialsOptions {
  readonly roots: RootSource;
  readonly host: string;
  readonly altHostname: string | null;
  readonly tls: TlsPolicy;
}

/**
 * Time for the TLS handshake; a server that never finishes it must not block the channel. It is gRPC's least time for a
 * connection: where all clients return to a server at once, one that gave up earlier would only add handshakes.
 */
export const HANDSHAKE_TIMEOUT_MS = 20_000;

/**
 * Channel credentials that read the trust roots for every connection, so that the next connection uses a rotated bundle.
 * They accept a server with the host's name or the alternative name.
 */
export class RootsCredentials extends ChannelCredentials {
  readonly #options: RootsCredentialsOptions;
  #handshakes = 0;

  constructor(options: RootsCredentialsOptions) {
    super();
    this.#options = options;
  }

  /** True while a connected server has not finished the TLS handshake. */
  get handshaking(): boolean {
    return this.#handshakes > 0;
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
      connect: (socket) => this.#secure(socket),
      waitForReady: () => Promise.resolve(),
      getCallCredentials: () => perCall,
      // There is no state between connections.
      destroy: () => undefined,
    };
  }

  async #secure(socket: Socket): Promise<experimental.SecureConnectResult> {
    this.#handshakes += 1;
    try {
      return await secure(socket, this.#options);
    } finally {
      this.#handshakes -= 1;
    }
  }
}

async function secure(
  socket: Socket,
  options: RootsCredentialsOptions,
): Promise<experimental.SecureConnectResult> {
  // The channel has taken its own listener back. A reset before the TLS socket handles it would end the process.
  let failure: Error | null = null;
  socket.on('error', (error) => {
    failure = error;
  });
  const ca = await readRoots(options.roots);
  if (socket.destroyed) {
    throw (
      failure ??
      new MeshError('TLS_HANDSHAKE', 'the server closed the connection before the TLS handshake')
    );
  }
  return new Promise((resolve, reject) => {
    const secured = connect({
      socket,
      ca,
      ALPNProtocols: ['h2'],
      ...tlsParameters(options.tls),
      // RFC 6066 forbids addresses as server names.
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
      // Node is inside SSL_read here. If the socket and then the TLS socket were destroyed before it returns, the process would crash.
      setImmediate(() => resolve({ socket: secured, secure: true }));
    });
    // After a failed check Node has dropped the certificate.
    let certificate: X509Certificate | undefined;
    secured.prependOnceListener('secure', () => {
      certificate = secured.getPeerX509Certificate();
    });
    // The listener stays: the transport adds its own only after its next step.
    secured.on('error', (error) => {
      timer.cancel();
      reject(explained(error, certificate));
    });
    secured.once('close', () => {
      timer.cancel();
      reject(
        new MeshError('TLS_HANDSHAKE', 'the server closed the connection during the TLS handshake'),
      );
    });
  });
}

/** Names the difference of the clocks where it is the reason: a server backdates its certificate by minutes only. */
function explained(error: Error, certificate: X509Certificate | undefined): Error {
  if (!('code' in error) || error.code !== 'CERT_NOT_YET_VALID') return error;
  const from = certificate?.validFromDate.getTime() ?? NaN;
  const minutes = Math.ceil((from - systemClock.now()) / 60_000);
  const apart = Number.isNaN(minutes) ? '' : ` by at least ${minutes} min`;
  const since = Number.isNaN(minutes) ? '' : ` before ${new Date(from).toISOString()}`;
  return new MeshError(
    'TLS_HANDSHAKE',
    `the certificate of the server is not valid${since}: the clocks here and at the server differ${apart}`,
    { cause: error },
  );
}

function checkNames(
  options: RootsCredentialsOptions,
  certificate: PeerCertificate,
): Error | undefined {
  const refusal = checkServerIdentity(options.host, certificate);
  if (refusal === undefined || options.altHostname === null) return refusal;
  return checkServerIdentity(options.altHostname, certificate) === undefined ? undefined : refusal;
}
