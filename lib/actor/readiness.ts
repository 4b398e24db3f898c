import type { Readiness } from './actor.ts';

/** Holds the blockers that keep an actor from being ready. */
export class ReadinessGate implements Readiness {
  readonly #blockers = new Map<symbol, string>();
  readonly #listeners = new Set<(pending: readonly string[]) => void>();

  block(name: string): () => void {
    const key = Symbol(name);
    this.#blockers.set(key, name);
    this.#notify();
    return () => {
      if (this.#blockers.delete(key)) this.#notify();
    };
  }

  pending(): readonly string[] {
    return [...new Set(this.#blockers.values())].sort();
  }

  onChange(listener: (pending: readonly string[]) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #notify(): void {
    const pending = this.pending();
    for (const listener of this.#listeners) listener(pending);
  }
}
