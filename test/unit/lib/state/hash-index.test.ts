import test from 'ava';
import * as fc from 'fast-check';
import { HashIndex } from '../../../../lib/state/hash-index.ts';
import { RowTable } from '../../../../lib/state/row-table.ts';

test('an index has every id under its text after any changes, and hardly another', (t) => {
  const texts = Array.from({ length: 40 }, (_, index) => `text-${index}`);
  fc.assert(
    fc.property(
      fc.array(
        fc.record({
          add: fc.boolean(),
          text: fc.constantFrom(...texts),
          id: fc.integer({ min: 0, max: 5_000 }),
        }),
        { maxLength: 2_000, size: 'max' },
      ),
      (changes) => {
        const index = new HashIndex();
        const held = new Map<string, Set<number>>();
        for (const { add, text, id } of changes) {
          const ids = held.get(text) ?? new Set();
          held.set(text, ids);
          if (add && !ids.has(id)) index.add(text, id);
          if (!add) index.delete(text, id);
          if (add) ids.add(id);
          else ids.delete(id);
        }
        const wrong = texts.filter((text) => {
          const found = new Set(index.candidates(text));
          const wanted = held.get(text) ?? new Set();
          return found.size !== wanted.size || [...found].some((id) => !wanted.has(id));
        });
        t.deepEqual(wrong, []);
      },
    ),
    { numRuns: 20 },
  );
});

test('an index grows, and stays as it is when ids come and go', (t) => {
  const index = new HashIndex();
  for (let id = 0; id < 10_000; id += 1) index.add(`row-${id}`, id);
  t.true([...index.candidates('row-7777')].includes(7_777));
  for (let round = 0; round < 20; round += 1) {
    for (let id = 0; id < 10_000; id += 1) {
      index.delete(`row-${id}`, id);
      index.add(`row-${id}`, id);
    }
  }
  const ids = Array.from({ length: 10_000 }, (_, id) => id);
  const lost = ids.filter((id) => ![...index.candidates(`row-${id}`)].includes(id));
  t.deepEqual(lost, []);
  for (let id = 0; id < 10_000; id += 1) index.delete(`row-${id}`, id);
  t.deepEqual([...index.candidates('row-7777')], []);
});

test('rows keep their bytes and their names, whether the bytes contain the name or not', (t) => {
  const rows = new RowTable();
  const text = (value: string): Uint8Array => Buffer.from(value);
  const inside = rows.add('demo/a', text('x demo/a y'));
  const behind = rows.add('demo/ä', text('something else'));
  const empty = rows.add('demo/b', new Uint8Array());
  t.is(Buffer.from(rows.bytes(inside)).toString(), 'x demo/a y');
  t.is(Buffer.from(rows.bytes(behind)).toString(), 'something else');
  t.is(rows.bytes(empty).length, 0);
  t.deepEqual([...rows.ids()].map((id) => rows.name(id)).sort(), ['demo/a', 'demo/b', 'demo/ä']);
  t.is(rows.find('demo/ä'), behind);
  t.is(rows.find('demo/c'), undefined);
  rows.delete(behind);
  t.is(rows.find('demo/ä'), undefined);
  t.is(rows.size, 2);
  const many = Array.from({ length: 3_000 }, (_, index) =>
    rows.add(`row-${index}`, text(`${index}`)),
  );
  t.is(rows.name(many[2_999] ?? -1), 'row-2999');
  t.is(Buffer.from(rows.bytes(rows.find('row-1500') ?? -1)).toString(), '1500');
});
