/** A copy in random order, each order being equally likely; `random` gives numbers from 0 up to 1. */
export function shuffled<T>(items: readonly T[], random: () => number = Math.random): T[] {
  const copy = [...items];
  for (let last = copy.length - 1; last > 0; last -= 1) {
    const other = Math.floor(random() * (last + 1));
    const held = copy[last] as T;
    copy[last] = copy[other] as T;
    copy[other] = held;
  }
  return copy;
}
