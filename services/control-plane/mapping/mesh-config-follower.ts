/** Follows the MeshConfig: a file, or else key `mesh` of ConfigMap `istio` in the system namespace. */
import type { Clock } from '../../../lib/clock/clock.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import { readBounded } from '../../../lib/files/bounded-file.ts';
import { FollowedFile } from '../../../lib/files/followed-file.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { MAX_MESH_CONFIG_BYTES } from '../limits.ts';
import { namespaceOf } from '../manifests/kinds.ts';
import type { ObjectChange } from '../store/object-store.ts';
import { readMeshConfig } from './mesh-config.ts';
import type { MeshConfig } from './mesh-config.ts';

/** Collaborators of a {@link MeshConfigFollower}. */
export interface MeshConfigFollowerDeps {
  /** The file; null takes the ConfigMap. */
  readonly path: string | null;
  /** Namespace of the ConfigMap. */
  readonly namespace: string;
  readonly clock: Clock;
  readonly log: Logger;
  /** Told of each new MeshConfig; null when there is none any more. */
  changed(config: MeshConfig | null): void;
}

const CONFIG_MAP = 'istio';
const KEY = 'mesh';
const DEBOUNCE_MS = 500;
const POLL_MS = 30_000;

/** Reads the MeshConfig when it changes. One that cannot be read is logged, and the last good one stays in force. */
export class MeshConfigFollower {
  readonly #deps: MeshConfigFollowerDeps;
  #text: string | null = null;
  #followed: FollowedFile | null = null;
  /** Fields without effect that the log has named. */
  readonly #named = new Set<string>();

  constructor(deps: MeshConfigFollowerDeps) {
    this.#deps = deps;
  }

  /** Reads the file, where one is configured. Throws when it cannot be read, or CONFIG_INVALID that names the field. */
  async start(): Promise<void> {
    const { path, clock, log } = this.#deps;
    if (path === null) return;
    this.#apply(path, await readText(path));
    this.#followed = new FollowedFile(
      { path, debounceMs: DEBOUNCE_MS, pollMs: POLL_MS },
      { clock, log },
      () => void this.#readAgain(path),
    );
  }

  /** Takes the ConfigMap from changed objects. */
  note(changes: readonly ObjectChange[]): void {
    if (this.#deps.path !== null) return;
    for (const { before, after } of changes) {
      const object = after ?? before;
      if (object?.kind !== 'ConfigMap' || object.metadata.name !== CONFIG_MAP) continue;
      if (namespaceOf(object) !== this.#deps.namespace) continue;
      const text = after?.kind === 'ConfigMap' ? (after.data?.[KEY] ?? null) : null;
      this.#take(`ConfigMap ${this.#deps.namespace}/${CONFIG_MAP}, ${KEY}`, text);
    }
  }

  close(): void {
    this.#followed?.close();
    this.#followed = null;
  }

  async #readAgain(path: string): Promise<void> {
    try {
      const text = await readText(path);
      if (this.#followed !== null) this.#take(path, text);
    } catch (error) {
      this.#deps.log.error({ source: path, error: errorText(error) }, 'mesh-config.refused');
    }
  }

  #take(source: string, text: string | null): void {
    try {
      this.#apply(source, text);
    } catch (error) {
      this.#text = text;
      this.#deps.log.error({ source, error: errorText(error) }, 'mesh-config.refused');
    }
  }

  #apply(source: string, text: string | null): void {
    if (text === this.#text) return;
    const read = text === null ? null : readMeshConfig(source, text);
    this.#text = text;
    const unnamed = (read?.ignored ?? []).filter((field) => !this.#named.has(field));
    for (const field of unnamed) this.#named.add(field);
    if (unnamed.length > 0) {
      this.#deps.log.warn({ source, fields: unnamed }, 'mesh-config.fields-ignored');
    }
    this.#deps.log.info({ source }, 'mesh-config.applied');
    this.#deps.changed(read?.config ?? null);
  }
}

async function readText(path: string): Promise<string> {
  return (await readBounded(path, MAX_MESH_CONFIG_BYTES)).toString('utf8');
}
