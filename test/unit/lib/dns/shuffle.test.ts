import test from 'ava';
import { shuffled } from '../../../../lib/dns/resolve.ts';

// spec: dns.md §4
test('every order comes equally often, nothing is lost, and the list itself stays', (t) => {
  const list = ['a', 'b', 'c'];
  const counts = new Map<string, number>();
  // Each of the two draws, in steps of a sixth of its range.
  for (let first = 0; first < 6; first += 1) {
    for (let second = 0; second < 6; second += 1) {
      const draws = [first / 6, second / 6];
      const order = shuffled(list, () => draws.shift() ?? 0).join('');
      counts.set(order, (counts.get(order) ?? 0) + 1);
    }
  }
  t.deepEqual([...counts.keys()].toSorted(), ['abc', 'acb', 'bac', 'bca', 'cab', 'cba']);
  t.deepEqual([...new Set(counts.values())], [6]);
  t.deepEqual(list, ['a', 'b', 'c']);
  t.deepEqual(shuffled([], Math.random), []);
});
