import test from 'ava';
import * as fc from 'fast-check';
import { BitSet } from '../../../../lib/collections/bit-set.ts';

const elements = fc.uniqueArray(fc.oneof(fc.nat({ max: 70 }), fc.nat({ max: 5_000 })));
const sorted = (values: Iterable<number>): number[] => [...values].sort((a, b) => a - b);

function setOf(values: readonly number[]): BitSet {
  const set = new BitSet();
  for (const value of values) set.add(value);
  return set;
}

test('it does what a Set of numbers does', (t) => {
  fc.assert(
    fc.property(elements, elements, elements, (left, right, third) => {
      const bits = setOf(left);
      const plain = new Set(left);
      bits.addAll(setOf(right));
      for (const value of right) plain.add(value);
      bits.deleteAll(setOf(third));
      for (const value of third) plain.delete(value);
      t.deepEqual([...bits], sorted(plain));
      t.is(bits.size, plain.size);
      t.is(
        bits.meets(setOf(right)),
        right.some((value) => plain.has(value)),
      );
      const common = setOf(third);
      common.addCommon(bits, setOf(right));
      const expected = new Set([...third, ...right.filter((value) => plain.has(value))]);
      t.deepEqual([...common], sorted(expected));
      t.is(common.size, expected.size);
      for (const value of left) t.is(bits.delete(value), plain.delete(value));
      t.is(bits.size, plain.size);
    }),
    { numRuns: 200 },
  );
});

test('two sets are compared within bounds, both included', (t) => {
  fc.assert(
    fc.property(
      elements,
      elements,
      fc.nat({ max: 200 }),
      fc.nat({ max: 200 }),
      (a, b, from, more) => {
        const to = from + more;
        const within = (values: readonly number[]): number[] =>
          sorted(values.filter((value) => value >= from && value <= to));
        t.is(
          setOf(a).sameWithin(setOf(b), from, to),
          JSON.stringify(within(a)) === JSON.stringify(within(b)),
        );
      },
    ),
    { numRuns: 200 },
  );
});
