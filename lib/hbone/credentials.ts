import { constants, createPrivateKey } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { createSecureContext, createServer } from 'node:tls';
import type { SecureContext, SecureContextOptions, Server } from 'node:tls';
import { MeshError, asMeshError } from '../errors/mesh-error.ts';
import { TLS_CIPHERS, TLS_MIN_VERSION } from '../identity/tls-parameters.ts';

/** Suites of TLS 1.2, where it is allowed (spec/hbone.md §2). */
const TLS12_CIPHERS =
  'ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-AES128-GCM-SHA256';

const HBONE_ALPN = 'h2';

/** A certificate with its key and the roots that peers are verified against. */
export interface CredentialSource {
  readonly identity: string;
  /** Leaf then intermediates, PEM. */
  readonly chainPem: string;
  readonly key: KeyObject | string;
  readonly rootsPem: string;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
}

/** Settings of the TLS layer. */
export interface CredentialOptions {
  readonly tls12: boolean;
  /** For the whole server handshake, milliseconds. */
  readonly handshakeTimeoutMs: number;
}

/**
 * An identity's TLS contexts, made once per rotation and shared by all its tunnels: a context per handshake
 * costs a third of the handshake rate (research/numbers.md §6).
 */
export class TunnelCredentials {
  readonly identity: string;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
  readonly clientContext: SecureContext;
  /** Never listens: sockets are handed to it. Holds the server's context. */
  readonly server: Server;

  /** Throws IDENTITY_INVALID when key, chain and roots do not make a TLS context. */
  constructor(source: CredentialSource, options: CredentialOptions) {
    this.identity = source.identity;
    this.notBeforeMs = source.notBeforeMs;
    this.notAfterMs = source.notAfterMs;
    try {
      const context = contextOptions(source, options);
      this.clientContext = createSecureContext(context);
      this.server = createServer({
        ...context,
        ALPNProtocols: [HBONE_ALPN],
        requestCert: true,
        rejectUnauthorized: true,
        handshakeTimeout: options.handshakeTimeoutMs,
      });
    } catch (error) {
      throw asMeshError(error, 'IDENTITY_INVALID', `credentials of ${source.identity}`);
    }
  }

  /** Throws IDENTITY_EXPIRED once the certificate may not be used any more. */
  assertValid(nowMs: number): void {
    if (nowMs < this.notAfterMs) return;
    const at = new Date(this.notAfterMs).toISOString();
    throw new MeshError('IDENTITY_EXPIRED', `the certificate of ${this.identity} expired at ${at}`);
  }
}

function contextOptions(
  source: CredentialSource,
  options: CredentialOptions,
): SecureContextOptions & { key: string } {
  const key = typeof source.key === 'string' ? createPrivateKey(source.key) : source.key;
  return {
    cert: source.chainPem,
    // node:tls takes no KeyObject.
    key: key.export({ type: 'pkcs8', format: 'pem' }),
    ca: source.rootsPem,
    minVersion: options.tls12 ? 'TLSv1.2' : TLS_MIN_VERSION,
    maxVersion: 'TLSv1.3',
    ciphers: options.tls12 ? `${TLS_CIPHERS}:${TLS12_CIPHERS}` : TLS_CIPHERS,
    // A resumed session carries no client certificate: a server with Node's defaults let such a client in.
    secureOptions: constants.SSL_OP_NO_TICKET | constants.SSL_OP_NO_RENEGOTIATION,
  };
}
