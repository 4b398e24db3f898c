/**
 * Shares the processor of a thread between keys (pods): work is let go a few pieces a turn of the event loop, one key after
 * the other, so that a key with a thousand pieces waiting delays another's next one by a single round.
 */
export class FairTurns {
  readonly #perTurn: number;
  readonly #waiting = new Map<string, (() => void)[]>();
  #used = 0;
  #size = 0;
  #scheduled = false;

  /** `perTurn`: pieces let go in one turn of the event loop. */
  constructor(perTurn: number) {
    this.#perTurn = perTurn;
  }

  /** Pieces that wait. Who asks bounds them: a piece is asked for only by an admitted handshake. */
  get waiting(): number {
    return this.#size;
  }

  /** Resolves when it is the key's turn: at once while this turn has room and nobody waits. */
  turn(key: string): Promise<void> | void {
    if (this.#used < this.#perTurn && this.#size === 0) {
      this.#used += 1;
      this.#schedule();
      return undefined;
    }
    return new Promise((resolve) => {
      const queue = this.#waiting.get(key) ?? [];
      queue.push(resolve);
      this.#waiting.set(key, queue);
      this.#size += 1;
      this.#schedule();
    });
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#used = 0;
      while (this.#used < this.#perTurn && this.#size > 0) this.#release();
      if (this.#used > 0) this.#schedule();
    });
  }

  /** Lets the first piece of the first key go; the key goes to the end of the round. */
  #release(): void {
    const [entry] = this.#waiting;
    if (entry === undefined) return;
    const [key, queue] = entry;
    this.#waiting.delete(key);
    const resolve = queue.shift();
    if (queue.length > 0) this.#waiting.set(key, queue);
    this.#used += 1;
    this.#size -= 1;
    resolve?.();
  }
}
