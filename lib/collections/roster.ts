/** Something that stands in a roster. */
export interface Listed {
  /** Where; the roster's own mark. */
  place: number;
}

/**
 * What is alive now, of things that come and go by the thousand. A `Set` as busy is copied to a new table every few dozen changes,
 * and each table leads V8 to the next: once one of them is old, nothing that stood in any later one is freed before the
 * next full collection. A member stands in one roster at most.
 */
export class Roster<Member extends Listed> {
  readonly #members: Member[] = [];

  get size(): number {
    return this.#members.length;
  }

  /** Takes in what is in no roster. */
  add(member: Member): void {
    member.place = this.#members.length;
    this.#members.push(member);
  }

  /** Without effect for what is not in here. */
  delete(member: Member): void {
    if (this.#members[member.place] !== member) return;
    const last = this.#members.pop();
    if (last === undefined || last === member) return;
    this.#members[member.place] = last;
    last.place = member.place;
  }

  /**
   * The member at a place from 0 to size - 1. Who walks from the last to the first meets all that stay, though members come
   * and go meanwhile: the last one takes the place of one that goes.
   */
  at(place: number): Member | undefined {
    return this.#members[place];
  }

  /** The members of this moment, in no order; they may go meanwhile. */
  [Symbol.iterator](): ArrayIterator<Member> {
    return this.#members.slice().values();
  }
}
