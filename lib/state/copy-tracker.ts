/**
 * Turns the full copies of a table (`onReset`, `onEntries`, `onSynced`) into removals: what was held before a
 * copy and is not in it is gone.
 */
export class CopyTracker {
  #unseen: Set<string> | null = null;

  /** True between the start and the end of a copy. */
  get copying(): boolean {
    return this.#unseen !== null;
  }

  /** A copy begins; `held` are the names held now. */
  begin(held: Iterable<string>): void {
    this.#unseen = new Set(held);
  }

  /** The copy holds this name. */
  saw(name: string): void {
    this.#unseen?.delete(name);
  }

  /** The copy is complete: the names to remove. */
  end(): readonly string[] {
    const gone = [...(this.#unseen ?? [])];
    this.#unseen = null;
    return gone;
  }
}
