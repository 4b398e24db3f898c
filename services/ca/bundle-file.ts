import type { Clock, Timer } from '../../lib/clock/clock.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { readIfPresent, replaceFile } from '../../lib/files/atomic-file.ts';
import { FreshReading } from '../../lib/files/fresh-reading.ts';
import type { Logger } from '../../lib/log/logger.ts';
import type { AuthoritySource } from './authority.ts';
import { BUNDLE_RETRY_MS } from './limits.ts';

/** Collaborators of a {@link BundleFile}. */
export interface BundleFileDeps {
  readonly clock: Clock;
  readonly log: Pick<Logger, 'info' | 'error'>;
  readonly authority: AuthoritySource;
}

/** Keeps the trust bundle in a file that nodes read. The owner closes it. */
export class BundleFile {
  readonly #path: string;
  readonly #deps: BundleFileDeps;
  readonly #writing = new FreshReading(() => this.#writeLater());
  #unfollow: (() => void) | null = null;
  #retry: Timer | null = null;

  constructor(path: string, deps: BundleFileDeps) {
    this.#path = path;
    this.#deps = deps;
  }

  /** Writes the bundle, and from now on every change of it. Throws when the first write fails. */
  async start(): Promise<void> {
    await this.#write();
    this.#unfollow = this.#deps.authority.onChange(() => void this.#writing.run());
  }

  /** Resolves when no write is under way. */
  async close(): Promise<void> {
    this.#unfollow?.();
    this.#unfollow = null;
    this.#retry?.cancel();
    await this.#writing.run();
  }

  async #writeLater(): Promise<void> {
    this.#retry?.cancel();
    if (this.#unfollow === null) return;
    try {
      await this.#write();
    } catch (error) {
      this.#deps.log.error(
        { path: this.#path, problem: errorText(error) },
        'trust-bundle.write-failed',
      );
      this.#retry = this.#deps.clock.after(BUNDLE_RETRY_MS, () => void this.#writing.run());
    }
  }

  async #write(): Promise<void> {
    const { rootsPem } = this.#deps.authority.current;
    if ((await readIfPresent(this.#path)) === rootsPem) return;
    await replaceFile(this.#path, rootsPem, 0o644);
    this.#deps.log.info({ path: this.#path }, 'trust-bundle.written');
  }
}
