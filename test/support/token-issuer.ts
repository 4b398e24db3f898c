import { generateKeyPairSync } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { TOKEN_AUDIENCE, keySetFor, mintToken } from '../../lib/identity/token.ts';
import type { TokenSubject, TokenTerms } from '../../lib/identity/token.ts';

/** Plays the API server's part: signs tokens and publishes their keys. */
export interface TestTokenIssuer {
  readonly issuer: string;
  /** Writes the key set file. */
  publish(path: string): Promise<void>;
  mint(subject: TokenSubject, terms?: Partial<TokenTerms>): Promise<string>;
}

/** Creates an issuer with a new key. */
export function createTokenIssuer(issuer = 'https://kubernetes.test'): TestTokenIssuer {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return {
    issuer,
    publish: async (path) => writeFile(path, JSON.stringify(await keySetFor(publicKey))),
    mint: (subject, terms) =>
      mintToken(privateKey, publicKey, subject, {
        issuer,
        audience: TOKEN_AUDIENCE,
        issuedAtMs: Date.now(),
        lifetimeMs: 3_600_000,
        ...terms,
      }),
  };
}

/** Returns the subject of a node's own account, bound to the pod of `nodePod` (test/support/pods-api.ts). */
export function nodeSubject(node: string): TokenSubject {
  return {
    namespace: 'istio-system',
    serviceAccount: { name: 'ztunnel', uid: 'sa-ztunnel' },
    pod: { name: `ztunnel-${node}`, uid: `uid-istio-system-ztunnel-${node}` },
    node: { name: node, uid: `uid-${node}` },
  };
}

/** Returns the subject of an account without a pod. */
export function accountSubject(namespace: string, name: string): TokenSubject {
  return { namespace, serviceAccount: { name, uid: `sa-${name}` }, pod: null, node: null };
}
