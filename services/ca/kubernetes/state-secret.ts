import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { isCode } from '../../../lib/kubernetes/status.ts';
import { parseRotation, unusable } from '../state.ts';
import type { CaState, StateStore, StoredState } from '../state.ts';
import type { SecretContent, SecretObject } from './secret.ts';

/** Istio's type of the Secret (docs/spec/istiod-ambient.md §4.4). */
const TYPE = 'istio.io/ca-root';

/** Weft's own file among Istio's. */
const ROTATION = 'weft-rotation.json';

/** The state in Istio's Secret of a self-signed root, so that trust continues in either direction. */
export class StateSecret implements StateStore {
  readonly #secret: SecretObject;

  constructor(secret: SecretObject) {
    this.#secret = secret;
  }

  get where(): string {
    return this.#secret.where;
  }

  async read(): Promise<StoredState | null> {
    const content = await this.#secret.read();
    if (content === null) return null;
    return { state: this.#parse(content), version: content.version };
  }

  async version(): Promise<string | null> {
    return (await this.#secret.read())?.version ?? null;
  }

  create(state: CaState): Promise<void> {
    return this.#write(() => this.#secret.create(TYPE, withoutNulls(filesOf(state))));
  }

  replace(state: CaState, version: string): Promise<void> {
    return this.#write(() => this.#secret.patch(filesOf(state), version));
  }

  follow(changed: () => void): () => void {
    return this.#secret.follow(changed);
  }

  #parse({ files }: SecretContent): CaState {
    const certificatePem = files['ca-cert.pem'] ?? '';
    const keyPem = files['ca-key.pem'] ?? '';
    const rotation = files[ROTATION];
    const chainPem = files['cert-chain.pem'] ?? '';
    const rootsPem = files['root-cert.pem'] ?? '';
    try {
      return {
        signing: { certificatePem, keyPem },
        chainPem,
        // Old versions of Istio write no roots: the certificate is the root.
        rootsPem: rootsPem.trim() === '' ? certificatePem : rootsPem,
        rotation: rotation === undefined ? null : parseRotation(rotation),
      };
    } catch (error) {
      throw unusable(this.where, error);
    }
  }

  async #write(write: () => Promise<void>): Promise<void> {
    try {
      await write();
    } catch (error) {
      if (!isCode(error, 'KUBERNETES_CONFLICT')) throw error;
      throw new MeshError('STATE_CONFLICT', `${this.where} was changed by another process`, {
        cause: error,
      });
    }
  }
}

function filesOf({
  signing,
  chainPem,
  rootsPem,
  rotation,
}: CaState): Record<string, string | null> {
  return {
    'ca-cert.pem': signing.certificatePem,
    'ca-key.pem': signing.keyPem,
    'cert-chain.pem': chainPem,
    'root-cert.pem': rootsPem,
    [ROTATION]: rotation === null ? null : JSON.stringify(rotation),
  };
}

function withoutNulls(files: Readonly<Record<string, string | null>>): Record<string, string> {
  const kept = Object.entries(files).filter(
    (entry): entry is [string, string] => entry[1] !== null,
  );
  return Object.fromEntries(kept);
}
