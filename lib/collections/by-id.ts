/**
 * Holds objects that come and go by the thousand and are found by their ids, which come in rising order: a sorted list suffices. A
 * `Map` with as many changes keeps V8 from freeing its former entries, see roster.ts.
 */
export class ById<Member extends { readonly id: number }> {
  readonly #members: Member[] = [];

  get size(): number {
    return this.#members.length;
  }

  /** Adds a member whose id is above all others. */
  add(member: Member): void {
    this.#members.push(member);
  }

  get(id: number): Member | undefined {
    const member = this.#members[this.#indexOf(id)];
    return member?.id === id ? member : undefined;
  }

  /** Removes and returns a member; has no effect if there is none of this id. */
  delete(id: number): Member | undefined {
    const index = this.#indexOf(id);
    return this.#members[index]?.id === id ? this.#members.splice(index, 1)[0] : undefined;
  }

  /** Removes and returns all members. */
  clear(): Member[] {
    return this.#members.splice(0);
  }

  /** Iterates over a copy, since members may go meanwhile. */
  [Symbol.iterator](): ArrayIterator<Member> {
    return this.#members.slice().values();
  }

  /** The index of the member, or of the first with a higher id. */
  #indexOf(id: number): number {
    let from = 0;
    let to = this.#members.length;
    while (from < to) {
      const middle = (from + to) >>> 1;
      const member = this.#members[middle];
      if (member !== undefined && member.id < id) from = middle + 1;
      else to = middle;
    }
    return from;
  }
}
