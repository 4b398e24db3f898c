import { isDeepStrictEqual } from 'node:util';
import { present } from '../../lib/errors/assert.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { FreshReading } from '../../lib/files/fresh-reading.ts';
import type { Logger } from '../../lib/log/logger.ts';
import type { Authority, AuthoritySource, RotationReport } from './authority.ts';

/**
 * An authority whose content lies in a place that others change. A change that cannot be used is logged once, and the last good
 * authority stays in force. The owner closes it.
 */
export abstract class FollowedAuthority<Content> implements AuthoritySource {
  readonly #log: Pick<Logger, 'info' | 'warn'>;
  readonly #listeners = new Set<(authority: Authority) => void>();
  readonly #reading = new FreshReading(() => this.#reload());
  #content: Content | null = null;
  #authority: Authority | null = null;
  #problem: string | null = null;
  #unfollow: (() => void) | null = null;

  constructor(log: Pick<Logger, 'info' | 'warn'>) {
    this.#log = log;
  }

  get current(): Authority {
    return present(this.#authority, 'the authority is read at the start');
  }

  get problem(): string | null {
    return this.#problem;
  }

  get rotation(): RotationReport | null {
    return null;
  }

  abstract get where(): string;

  onChange(listener: (authority: Authority) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  abstract start(): Promise<void>;

  async close(): Promise<void> {
    this.#unfollow?.();
    this.#unfollow = null;
    this.#listeners.clear();
    await this.#reading.run();
  }

  /** Reads the content. Throws the reason why there is none. */
  protected abstract read(): Promise<Content>;

  /** Makes the authority of a content that differs from the one in force. Throws the reason when it must not be used. */
  protected abstract parse(content: Content): Authority;

  /** The content in force; null before the first. */
  protected get content(): Content | null {
    return this.#content;
  }

  /** Puts the first content in force, and follows the changes that `follow` tells. Throws what {@link parse} throws. */
  protected begin(content: Content, follow: (changed: () => void) => () => void): void {
    this.#use(content);
    // A reading reports its own failures and never rejects.
    this.#unfollow = follow(() => void this.#reading.run());
  }

  /** Resolves when a reading that began after this call has ended. */
  protected refresh(): Promise<void> {
    return this.#reading.run();
  }

  async #reload(): Promise<void> {
    if (this.#unfollow === null) return;
    try {
      const content = await this.read();
      if (!isDeepStrictEqual(content, this.#content)) this.#use(content);
      this.#problem = null;
    } catch (error) {
      const problem = errorText(error);
      if (problem === this.#problem) return;
      this.#problem = problem;
      this.#log.warn({ problem, keepsLastGood: true }, 'authority.unusable');
    }
  }

  #use(content: Content): void {
    const next = this.parse(content);
    const former = this.#authority;
    this.#content = content;
    this.#authority = next;
    if (former === null) return;
    if (!shareRoot(former, next)) {
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
}

/** True when some root is in both bundles, so that trust goes on from one to the other. */
export function shareRoot(left: Authority, right: Authority): boolean {
  const trusted = new Set(left.roots.map((root) => root.fingerprint256));
  return right.roots.some((root) => trusted.has(root.fingerprint256));
}
