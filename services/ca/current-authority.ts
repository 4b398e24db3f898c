import { present } from '../../lib/errors/assert.ts';
import type { Logger } from '../../lib/log/logger.ts';
import type { Authority } from './authority.ts';

/** Holds the authority in force and tells who follows it. */
export class CurrentAuthority {
  readonly #log: Pick<Logger, 'info' | 'warn'>;
  readonly #listeners = new Set<(authority: Authority) => void>();
  #authority: Authority | null = null;
  #problem: string | null = null;

  constructor(log: Pick<Logger, 'info' | 'warn'>) {
    this.#log = log;
  }

  /** The authority in force. There must be one. */
  get value(): Authority {
    return present(this.#authority, 'the authority is read at the start');
  }

  /** The reason why the latest source is not used; null when it is. */
  get problem(): string | null {
    return this.#problem;
  }

  onChange(listener: (authority: Authority) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Puts the authority in force. Calls nobody for the first one. */
  use(next: Authority): void {
    const former = this.#authority;
    this.#authority = next;
    this.#problem = null;
    if (former === null) return;
    const trusted = new Set(former.roots.map((root) => root.fingerprint256));
    if (!next.roots.some((root) => trusted.has(root.fingerprint256))) {
      this.#log.warn(
        { effect: 'nodes refuse certificates until they read the new roots' },
        'authority.roots-disjoint',
      );
    }
    this.#log.info(
      { roots: next.roots.length, notAfter: new Date(next.chainExpiresMs).toISOString() },
      'authority.replaced',
    );
    for (const listener of this.#listeners) listener(next);
  }

  /** The source is good again and did not change. */
  keep(): void {
    this.#problem = null;
  }

  /** Logs a problem once: every poll meets it again. */
  refuse(problem: string): void {
    if (problem === this.#problem) return;
    this.#problem = problem;
    this.#log.warn({ problem, keepsLastGood: true }, 'authority.unusable');
  }

  close(): void {
    this.#listeners.clear();
  }
}
