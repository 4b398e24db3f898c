/** The local stand-in for the API server's token projection: one signing key, one token file for each bearer. */
import { createPrivateKey, createPublicKey, generateKeyPairSync, randomUUID } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { mkdir, rename, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Clock, Timer } from '../../lib/clock/clock.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
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

/** As the kubelet projects them; replaced at half of it. */
const TOKEN_LIFETIME_MS = 3_600_000;
/** A failed replacement is tried again well before the old token ends. */
const RETRY_MS = 30_000;
const ISSUER = 'https://kubernetes.default.svc.cluster.local';

/** What the issuer stands on. */
export interface TokenIssuerDeps {
  readonly clock: Clock;
  readonly log: Logger;
  /** Lets the group of this process read the tokens, never the key. */
  readonly groupReads?: boolean;
  /** Called with every set of tokens that was written. */
  readonly onMinted?: () => Promise<void>;
}

/** Keeps the token files of a mesh valid. */
export class TokenIssuer {
  readonly #paths: MeshPaths;
  readonly #bearers: ReadonlyMap<string, TokenSubject>;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #privateKey: KeyObject;
  readonly #publicKey: KeyObject;
  readonly #keyPem: string;
  readonly #tokenMode: number;
  readonly #onMinted: () => Promise<void>;
  #timer: Timer | null = null;

  constructor(plan: MeshPlan, paths: MeshPaths, deps: TokenIssuerDeps) {
    this.#paths = paths;
    this.#bearers = tokenBearers(plan);
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#tokenMode = deps.groupReads === true ? 0o640 : 0o600;
    this.#onMinted = deps.onMinted ?? (() => Promise.resolve());
    const { privateKey } = generateKeyPairSync('ec', {
      namedCurve: 'P-256',
      privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
      publicKeyEncoding: { type: 'spki', format: 'pem' },
    });
    this.#keyPem = privateKey;
    this.#privateKey = createPrivateKey(privateKey);
    this.#publicKey = createPublicKey(privateKey);
  }

  /** Writes the key set and the first tokens, and renews them from then on. */
  async start(): Promise<void> {
    await mkdir(this.#paths.tokensDir, { recursive: true, mode: 0o755 });
    await replaceFile(join(this.#paths.tokensDir, 'signing-key.pem'), this.#keyPem, 0o600);
    const keys = await keySetFor(this.#publicKey);
    await replaceFile(jwksFile(this.#paths), `${JSON.stringify(keys)}\n`, 0o644);
    await this.#mintAll();
    this.#schedule(TOKEN_LIFETIME_MS / 2);
  }

  /** Renews no more. The last tokens stay valid to their end. */
  stop(): void {
    this.#timer?.cancel();
  }

  #schedule(delayMs: number): void {
    this.#timer = this.#clock.after(delayMs, () => {
      this.#mintAll().then(
        () => this.#schedule(TOKEN_LIFETIME_MS / 2),
        (error: unknown) => {
          this.#log.error({ error: errorText(error) }, 'tokens.renewal-failed');
          this.#schedule(RETRY_MS);
        },
      );
    });
  }

  async #mintAll(): Promise<void> {
    for (const [bearer, subject] of this.#bearers) {
      const token = await mintToken(this.#privateKey, this.#publicKey, subject, {
        issuer: ISSUER,
        audience: TOKEN_AUDIENCE,
        issuedAtMs: this.#clock.now(),
        lifetimeMs: TOKEN_LIFETIME_MS,
      });
      await replaceFile(tokenFile(this.#paths, bearer), token, this.#tokenMode);
    }
    await this.#onMinted();
  }
}

/** Who gets a token, by the name of its directory. The actors of a local mesh are no pods, so no token is bound to one. */
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

async function replaceFile(path: string, text: string, mode: number): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(`${path}.new`, text, { mode });
  await rename(`${path}.new`, path);
}
