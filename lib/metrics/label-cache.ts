import type { TrafficFacts } from './traffic-labels.ts';

/** Label sets kept for one workload; with more peers at once, some are made again. */
export const MAX_SETS_PER_WORKLOAD = 16;

interface Kept<Set> {
  readonly facts: TrafficFacts;
  readonly set: Set;
}

/**
 * Keeps label sets by the facts that they were made of. Labels are some twenty texts; it is faster to compare the objects behind
 * them, which stay the same until the mesh changes. Entries live as long as their workload.
 */
export class LabelCache<Set> {
  readonly #lists = new WeakMap<object, Kept<Set>[]>();

  /** Returns the entry of these objects and texts. */
  find(facts: TrafficFacts): Set | undefined {
    const anchor = anchorOf(facts);
    if (anchor === null) return undefined;
    const list = this.#lists.get(anchor);
    if (list === undefined) return undefined;
    for (const kept of list) if (isSame(kept.facts, facts)) return kept.set;
    return undefined;
  }

  /** Keeps an entry in place of the one of the same facts, or of the oldest one. Has no effect for facts without a workload. */
  keep(facts: TrafficFacts, set: Set): void {
    const anchor = anchorOf(facts);
    if (anchor === null) return;
    const list = this.#lists.get(anchor) ?? [];
    const before = list.findIndex((kept) => isSame(kept.facts, facts));
    if (before !== -1) list.splice(before, 1);
    else if (list.length >= MAX_SETS_PER_WORKLOAD) list.shift();
    list.push({ facts, set });
    this.#lists.set(anchor, list);
  }
}

function anchorOf(facts: TrafficFacts): object | null {
  return facts.sourceWorkload ?? facts.sourceBaggage ?? facts.destinationWorkload;
}

function isSame(left: TrafficFacts, right: TrafficFacts): boolean {
  return (
    left.sourceWorkload === right.sourceWorkload &&
    left.destinationWorkload === right.destinationWorkload &&
    left.destinationService === right.destinationService &&
    left.sourceIdentity === right.sourceIdentity &&
    left.destinationIdentity === right.destinationIdentity &&
    left.sourceBaggage === right.sourceBaggage &&
    left.destinationBaggage === right.destinationBaggage &&
    left.reporter === right.reporter &&
    left.mutualTls === right.mutualTls
  );
}
