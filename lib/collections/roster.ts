/** A member of a roster. */
export interface Listed {
  /** Its place; only the roster sets it. */
  place: number;
}

/**
 * Holds the live ones of objects that come and go by the thousand. V8 copies an equally busy `Set` to a new table every few dozen
 * changes, and each table refers to the next. Once one of them is in the old generation, no member of a later one is freed before
 * the next full collection. A member is in one roster at most.
 */
export class Roster<Member extends Listed> {
  readonly #members: Member[] = [];

  get size(): number {
    return this.#members.length;
  }

  /** Adds an object that is in no roster. */
  add(member: Member): void {
    member.place = this.#members.length;
    this.#members.push(member);
  }

  /** Removes a member; does nothing for other objects. */
  delete(member: Member): void {
    if (this.#members[member.place] !== member) return;
    const last = this.#members.pop();
    if (last === undefined || last === member) return;
    this.#members[member.place] = last;
    last.place = member.place;
  }

  /**
   * Returns the member at a place from 0 to size - 1. A walk from the last to the first meets all members that stay, even if
   * others come and go meanwhile, because the last member takes the place of a removed one.
   */
  at(place: number): Member | undefined {
    return this.#members[place];
  }

  /** Returns the present members, in no order; they may be removed meanwhile. */
  [Symbol.iterator](): ArrayIterator<Member> {
    return this.#members.slice().values();
  }
}
