/** Projects tokens in the place of the API server: one signing key, one token file for each bearer. */
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { join } from 'node:path';
import type { Clock, Timer } from '../../lib/clock/clock.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { replaceFile } from '../../lib/files/atomic-file.ts';
import { TOKEN_AUDIENCE, keySetFor, mintToken } from '../../lib/identity/token.ts';
import type { TokenSubject } from '../../lib/identity/token.ts';
import type { Logger } from '../../lib/log/logger.ts';
import {
  CONTROL_ACCOUNT,
  INGESTER_ACCOUNT,
  NODE_ACCOUNT,
  SYSTEM_NAMESPACE,
  jwksFile,
} from './actor-env.ts';
import { tokenFile } from './mesh-paths.ts';
import type { MeshPaths } from './mesh-paths.ts';
import type { MeshPlan } from './topology.ts';

/** Life of a token, as the kubelet requests; it is replaced after half of it. */
const TOKEN_LIFETIME_MS = 3_600_000;
/** Delay before another attempt to replace tokens; far below their life. */
const RETRY_MS = 30_000;
const ISSUER = 'https://kubernetes.default.svc.cluster.local';

/** Dependencies and settings of the issuer. */
export interface TokenIssuerDeps {
  readonly clock: Clock;
  readonly log: Logger;
  /** Lets this process's group read the tokens, but never the key. */
  readonly groupReads?: boolean;
  /** Called after each set of tokens was written. */
  readonly onMinted?: () => Promise<void>;
}

/** Keeps the token files of a mesh valid. */
export class TokenIssuer {
  readonly #paths: MeshPaths;
  readonly #bearers: ReadonlyMap<string, TokenSubject>;
  readonly #deps: TokenIssuerDeps;
  readonly #keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  #timer: Timer | null = null;
  /** The tokens that are being written, or were written last. */
  #minting: Promise<void> = Promise.resolve();
  #stopped = false;

  constructor(plan: MeshPlan, paths: MeshPaths, deps: TokenIssuerDeps) {
    this.#paths = paths;
    this.#bearers = tokenBearers(plan);
    this.#deps = deps;
  }

  /** Writes the key set and the first tokens, and renews them from then on. */
  async start(): Promise<void> {
    const { privateKey, publicKey } = this.#keys;
    const keySet = `${JSON.stringify(await keySetFor(publicKey))}\n`;
    await replaceFile(jwksFile(this.#paths), keySet, 0o644);
    const pem = privateKey.export({ type: 'pkcs8', format: 'pem' });
    await replaceFile(join(this.#paths.tokensDir, 'signing-key.pem'), pem, 0o600);
    await this.#mintAll();
    this.#schedule(TOKEN_LIFETIME_MS / 2);
  }

  /** Stops the renewal; resolves once nothing is written any more. The last tokens stay valid until they expire. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#timer?.cancel();
    await this.#minting;
  }

  #schedule(delayMs: number): void {
    if (this.#stopped) return;
    this.#timer = this.#deps.clock.after(delayMs, () => {
      this.#minting = this.#renew();
    });
  }

  async #renew(): Promise<void> {
    try {
      await this.#mintAll();
      this.#schedule(TOKEN_LIFETIME_MS / 2);
    } catch (error) {
      this.#deps.log.error({ error: errorText(error) }, 'tokens.renewal-failed');
      this.#schedule(RETRY_MS);
    }
  }

  async #mintAll(): Promise<void> {
    const { clock, groupReads, onMinted } = this.#deps;
    const { privateKey, publicKey } = this.#keys;
    const mode = groupReads === true ? 0o640 : 0o600;
    for (const [bearer, subject] of this.#bearers) {
      const token = await mintToken(privateKey, publicKey, subject, {
        issuer: ISSUER,
        audience: TOKEN_AUDIENCE,
        issuedAtMs: clock.now(),
        lifetimeMs: TOKEN_LIFETIME_MS,
      });
      await replaceFile(tokenFile(this.#paths, bearer), token, mode);
    }
    await onMinted?.();
  }
}

/** The bearers of tokens, by directory name. Actors of a local mesh are not pods, so no token is bound to a pod. */
export function tokenBearers(plan: MeshPlan): ReadonlyMap<string, TokenSubject> {
  return new Map<string, TokenSubject>([
    ['control-plane', system(CONTROL_ACCOUNT)],
    ['xds-ingester', system(INGESTER_ACCOUNT)],
    ...plan.nodes.map((node): [string, TokenSubject] => [
      node.name,
      { ...system(NODE_ACCOUNT), node: named(node.name) },
    ]),
  ]);
}

function system(account: string): TokenSubject {
  return {
    namespace: SYSTEM_NAMESPACE,
    serviceAccount: named(account),
    pod: null,
    node: null,
  };
}

function named(name: string): { name: string; uid: string } {
  return { name, uid: randomUUID() };
}
