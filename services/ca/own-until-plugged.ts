import { errorText } from '../../lib/errors/mesh-error.ts';
import { FreshReading } from '../../lib/files/fresh-reading.ts';
import type { Authority, AuthoritySource, RotationReport } from './authority.ts';
import { PluggedAuthority, isPlugged } from './plugged-authority.ts';
import type { PluggedDeps, PluggedFiles } from './plugged-authority.ts';

/**
 * An own root until the files of another authority appear. The files are taken without a restart when they share a root with the
 * bundle in force, so that trust goes on. Unusable files are logged once, and the own root stays. The owner closes it.
 */
export class OwnUntilPlugged implements AuthoritySource {
  readonly #files: PluggedFiles;
  readonly #deps: PluggedDeps;
  readonly #listeners = new Set<(authority: Authority) => void>();
  readonly #reading = new FreshReading(() => this.#look());
  #source: AuthoritySource;
  #problem: string | null = null;
  #unfollow: (() => void) | null = null;

  constructor(own: AuthoritySource, files: PluggedFiles, deps: PluggedDeps) {
    this.#source = own;
    this.#files = files;
    this.#deps = deps;
  }

  get current(): Authority {
    return this.#source.current;
  }

  get where(): string {
    return this.#source.where;
  }

  get problem(): string | null {
    return this.#problem ?? this.#source.problem;
  }

  get rotation(): RotationReport | null {
    return this.#source.rotation;
  }

  onChange(listener: (authority: Authority) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async start(): Promise<void> {
    await this.#source.start();
    this.#source.onChange((authority) => this.#tell(authority));
    this.#unfollow = this.#files.follow(() => void this.#reading.run());
  }

  async close(): Promise<void> {
    this.#stopLooking();
    this.#listeners.clear();
    await this.#reading.run();
    await this.#source.close();
  }

  #stopLooking(): void {
    this.#unfollow?.();
    this.#unfollow = null;
  }

  /** Never rejects. */
  async #look(): Promise<void> {
    if (this.#unfollow === null) return;
    const { log } = this.#deps;
    try {
      if (await isPlugged(this.#files)) await this.#plug();
      this.#problem = null;
    } catch (error) {
      const problem = errorText(error);
      if (problem !== this.#problem) {
        log.warn({ problem, keepsLastGood: true }, 'authority.unusable');
      }
      this.#problem = problem;
    }
  }

  async #plug(): Promise<void> {
    const own = this.#source;
    const plugged = new PluggedAuthority(this.#files, this.#deps, own.current);
    await plugged.start();
    if (this.#unfollow === null) {
      await plugged.close();
      return;
    }
    this.#stopLooking();
    this.#source = plugged;
    plugged.onChange((authority) => this.#tell(authority));
    this.#deps.log.info({ where: this.#files.where }, 'authority.plugged-in');
    this.#tell(plugged.current);
    await own.close();
  }

  #tell(authority: Authority): void {
    for (const listener of this.#listeners) listener(authority);
  }
}
