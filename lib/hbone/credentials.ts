import { createPrivateKey } from 'node:crypto';
import type { KeyObject, X509Certificate } from 'node:crypto';
import { createSecureContext, createServer } from 'node:tls';
import type { SecureContext, SecureContextOptions, Server } from 'node:tls';
import { MeshError, asMeshError } from '../errors/mesh-error.ts';
import { parseCertificates } from '../tls/pem.ts';
import { tlsParameters } from '../tls/parameters.ts';
import type { TlsPolicy } from '../tls/parameters.ts';

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
export interface CredentialOptions extends TlsPolicy {
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
  /** Leaf then intermediates, PEM. */
  readonly chainPem: string;
  /** The roots peers are verified against, PEM. */
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

  /** The roots peers are verified against; read when they are first asked for. */
  get roots(): readonly X509Certificate[] {
    this.#roots ??= parseCertificates(this.rootsPem, 'the trust bundle');
    return this.#roots;
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
    ...tlsParameters(options),
  };
}
