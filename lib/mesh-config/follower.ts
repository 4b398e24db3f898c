/** Follows the MeshConfig: a file, or the text that its owner takes from a ConfigMap. */
import type { Clock } from '../clock/clock.ts';
import { errorText } from '../errors/mesh-error.ts';
import { readBounded } from '../files/bounded-file.ts';
import { FollowedFile } from '../files/followed-file.ts';
import type { Logger } from '../log/logger.ts';

/** Collaborators of a {@link MeshConfigFollower}. */
export interface MeshConfigFollowerDeps<Config> {
  /** The file; null takes the ConfigMap. */
  readonly path: string | null;
  readonly clock: Clock;
  readonly log: Pick<Logger, 'debug' | 'info' | 'warn' | 'error'>;
  /** Reads a text; `ignored` are the fields without effect. Throws CONFIG_INVALID that names the field. */
  read(
    source: string,
    text: string,
  ): { readonly config: Config; readonly ignored: readonly string[] };
  /** Told of each new MeshConfig; null when there is none any more. */
  changed(config: Config | null): void;
}

/** Largest MeshConfig; a ConfigMap holds at most this much. */
const MAX_MESH_CONFIG_BYTES = 1024 * 1024;
const DEBOUNCE_MS = 500;
const POLL_MS = 30_000;

/** Reads the MeshConfig when it changes. One that cannot be read is logged, and the last good one stays in force. */
export class MeshConfigFollower<Config> {
  readonly #deps: MeshConfigFollowerDeps<Config>;
  #text: string | null = null;
  #followed: FollowedFile | null = null;
  /** Fields without effect that the log has named. */
  readonly #named = new Set<string>();

  constructor(deps: MeshConfigFollowerDeps<Config>) {
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

  /** Takes the text of the ConfigMap, null without one. It has no effect where a file is configured. */
  take(source: string, text: string | null): void {
    if (this.#deps.path === null) this.#take(source, text);
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
    const read = text === null ? null : this.#deps.read(source, text);
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
