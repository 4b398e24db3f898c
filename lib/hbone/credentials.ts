import { createPrivateKey } from 'node:crypto';
import type { KeyObject, X509Certificate } from 'node:crypto';
import { createSecureContext, createServer } from 'node:tls';
import type { SecureContext, SecureContextOptions, Server } from 'node:tls';
import { MeshError, asMeshError } from '../errors/mesh-error.ts';
import { parseCertificates } from '../tls/pem.ts';
import { tlsParameters } from '../tls/parameters.ts';
import type { TlsPolicy } from '../tls/parameters.ts';

/** The ALPN protocol of every tunnel. */
export const HBONE_ALPN = 'h2';

/** A certificate, its key, and the roots to verify peers against. */
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
export interface CredentialOptions extends TlsPolicy {
  /** Time limit of the whole server handshake, milliseconds. */
  readonly handshakeTimeoutMs: number;
}

/**
 * The TLS contexts of an identity. They are made once for each certificate and shared by all tunnels: a context for each handshake
 * would cost a third of the handshake rate.
 */
export class TunnelCredentials {
  readonly identity: string;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
  readonly clientContext: SecureContext;
  /** Holds the server's context. It never listens; accepted sockets are handed to it. */
  readonly server: Server;
  /** Leaf then intermediates, PEM. */
  readonly chainPem: string;
  /** The roots to verify peers against, PEM. */
  readonly rootsPem: string;
  #roots: readonly X509Certificate[] | null = null;

  /** Throws IDENTITY_INVALID when key, chain and roots do not make a TLS context. */
  constructor(source: CredentialSource, options: CredentialOptions) {
    this.identity = source.identity;
    this.notBeforeMs = source.notBeforeMs;
    this.notAfterMs = source.notAfterMs;
    this.chainPem = source.chainPem;
    this.rootsPem = source.rootsPem;
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

  /** The roots to verify peers against; parsed on first use. */
  get roots(): readonly X509Certificate[] {
    this.#roots ??= parseCertificates(this.rootsPem, 'the trust bundle');
    return this.#roots;
  }

  /** Throws IDENTITY_EXPIRED once the certificate has expired. */
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
    ...tlsParameters(options),
  };
}
