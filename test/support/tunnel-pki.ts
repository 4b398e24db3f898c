import { X509Certificate, createPublicKey, generateKeyPairSync } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import type { SecureContextOptions } from 'node:tls';
import { TunnelCredentials } from '../../lib/hbone/credentials.ts';
import type { CredentialSource } from '../../lib/hbone/credentials.ts';
import { DEFAULT_TLS_POLICY, tlsParameters } from '../../lib/tls/parameters.ts';
import type { TlsPolicy } from '../../lib/tls/parameters.ts';
import { createRoot, issueIntermediate, issueLeaf } from '../../lib/identity/x509.ts';
import type { Issuer } from '../../lib/identity/x509.ts';

export const CLIENT = 'spiffe://cluster.local/ns/demo/sa/client';
export const SERVER = 'spiffe://cluster.local/ns/demo/sa/server';

const HOUR_MS = 3_600_000;

/** A certificate authority for tunnel tests. */
export interface TunnelPki {
  readonly rootPem: string;
  readonly root: Issuer;
  /** An authority below the root. */
  readonly middle: Issuer;
  /** Returns the root's previous certificate with the same key, expired, PEM. */
  outlivedRoot(): Promise<string>;
  /** Returns a root with the same name and key that becomes valid in an hour. */
  renewedRoot(): Promise<string>;
  /** Issues a certificate for the identity; a negative `lifeMs` makes an expired one. */
  issue(identity: string, options?: IssueOptions): Promise<CredentialSource>;
  /** Issues a certificate for 127.0.0.1, as a server of node:tls wants it. */
  issueLocal(): Promise<{ readonly cert: string; readonly key: string }>;
}

export interface IssueOptions {
  readonly lifeMs?: number;
  /** Signs with an intermediate that the chain includes. */
  readonly intermediate?: boolean;
  /** Roots to trust instead of the authority's own. */
  readonly rootsPem?: string;
}

/** Creates a new authority. */
export async function createTunnelPki(name = 'test'): Promise<TunnelPki> {
  const now = Date.now();
  const validity = { notBeforeMs: now - 24 * HOUR_MS, notAfterMs: now + 24 * HOUR_MS };
  const root = await createRoot(name, validity.notBeforeMs, validity.notAfterMs);
  const rootIssuer: Issuer = {
    certificate: new X509Certificate(root.certificatePem),
    key: root.key,
  };
  const pair = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const middlePem = await issueIntermediate(rootIssuer, pair.publicKey, `${name} 2`, validity);
  const middle: Issuer = { certificate: new X509Certificate(middlePem), key: pair.privateKey };
  return {
    rootPem: root.certificatePem,
    root: rootIssuer,
    middle,
    outlivedRoot: () =>
      issueIntermediate(rootIssuer, createPublicKey(root.key), name, {
        notBeforeMs: now - 48 * HOUR_MS,
        notAfterMs: now - 24 * HOUR_MS,
      }),
    renewedRoot: () =>
      issueIntermediate(rootIssuer, createPublicKey(root.key), name, {
        notBeforeMs: now + HOUR_MS,
        notAfterMs: now + 24 * HOUR_MS,
      }),
    async issueLocal() {
      const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
      const cert = await issueLeaf(rootIssuer, {
        publicKey: keys.publicKey,
        names: [{ kind: 'ip', value: '127.0.0.1' }],
        notBeforeMs: now - HOUR_MS,
        notAfterMs: now + HOUR_MS,
      });
      return { cert, key: keys.privateKey.export({ type: 'pkcs8', format: 'pem' }) };
    },
    async issue(identity, options = {}) {
      const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
      const notAfterMs = Math.floor((Date.now() + (options.lifeMs ?? HOUR_MS)) / 1000) * 1000;
      const notBeforeMs = Math.min(now, notAfterMs) - HOUR_MS;
      const leaf = await issueLeaf(options.intermediate === true ? middle : rootIssuer, {
        publicKey: keys.publicKey,
        names: [{ kind: 'uri', value: identity }],
        notBeforeMs,
        notAfterMs,
      });
      return {
        identity,
        chainPem: options.intermediate === true ? leaf + middlePem : leaf,
        key: keys.privateKey,
        rootsPem: options.rootsPem ?? root.certificatePem,
        notBeforeMs,
        notAfterMs,
      };
    },
  };
}

/** Creates TLS contexts for a certificate. */
export function credentials(
  source: CredentialSource,
  policy: Partial<TlsPolicy> = {},
): TunnelCredentials {
  // Long, so that a busy machine does not count as a slow peer.
  const handshakeTimeoutMs = 60_000;
  return new TunnelCredentials(source, { ...DEFAULT_TLS_POLICY, ...policy, handshakeTimeoutMs });
}

/** Returns a certificate as node:tls and files want it. */
export function pems(source: CredentialSource): {
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
} {
  if (typeof source.key === 'string') throw new Error('the key is no object');
  const key = source.key.export({ type: 'pkcs8', format: 'pem' });
  return { cert: source.chainPem, key, ca: source.rootsPem };
}

/** Creates TLS contexts that know only these suites and groups, also those that our own rules do not offer. */
export function credentialsLimitedTo(
  source: CredentialSource,
  limits: Pick<SecureContextOptions, 'ciphers' | 'ecdhCurve' | 'minVersion' | 'maxVersion'>,
): TunnelCredentials {
  const limited = credentials(source);
  const options = { ...pems(source), ...tlsParameters(DEFAULT_TLS_POLICY), ...limits };
  limited.server.setSecureContext(options);
  return Object.assign(limited, { clientContext: createSecureContext(options) });
}

/** Makes credentials of a client and a server under one new authority. */
export async function identities(): Promise<{
  readonly client: TunnelCredentials;
  readonly server: TunnelCredentials;
}> {
  const pki = await createTunnelPki();
  return {
    client: credentials(await pki.issue(CLIENT)),
    server: credentials(await pki.issue(SERVER)),
  };
}
