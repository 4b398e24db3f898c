/** Lists and watches are cut into objects whatever the network makes of their bytes. */
import test from 'ava';
import * as fc from 'fast-check';
import { jsonLines, listItems } from '../../lib/kubernetes/json-stream.ts';

/** Any JSON object; texts hold brackets, quotes and escapes often enough. */
const text = fc.oneof(
  fc.string(),
  fc.constantFrom('}', '{"', '],', '\\', '\\"', '","items":[', 'ü€😀'),
);
const { value: json } = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    text,
    fc.integer(),
    fc.boolean(),
    fc.constant(null),
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(text, tie('value'), { maxKeys: 4 }),
  ),
}));
const object = fc.dictionary(text, json, { maxKeys: 4 });

/** The bytes in pieces of these sizes, again and again. */
async function* pieces(bytes: Buffer, sizes: readonly number[]): AsyncGenerator<Buffer> {
  for (let start = 0, turn = 0; start < bytes.length; turn += 1) {
    const end = start + (sizes[turn % sizes.length] ?? 1);
    // A copy, as the network gives one: the reader may write into it.
    yield Buffer.from(bytes.subarray(start, end));
    start = end;
  }
}

const sizes = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 5 });

test('a list is its items and the rest', async (t) => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(object, { maxLength: 5 }),
      sizes,
      fc.boolean(),
      async (items, cut, last) => {
        const metadata = { resourceVersion: '7', continue: 'a]}"' };
        const list = last
          ? { kind: 'PodList', metadata, items }
          : { items, kind: 'PodList', metadata };
        const reader = listItems(pieces(Buffer.from(JSON.stringify(list)), cut), 'pods');
        const read: unknown[] = [];
        for (;;) {
          const { done, value } = await reader.next();
          if (done === true) {
            t.deepEqual(read, JSON.parse(JSON.stringify(items)) as unknown[]);
            t.deepEqual(value, { kind: 'PodList', metadata, items: [] });
            return;
          }
          read.push(value);
        }
      },
    ),
    { numRuns: 300 },
  );
});

test('a list without items, or with null for them, has none', async (t) => {
  for (const list of ['{"metadata":{}}', '{"metadata":{},"items":null}', '{"items":[]}']) {
    const reader = listItems(pieces(Buffer.from(list), [3]), 'pods');
    t.is((await reader.next()).done, true, list);
  }
});

test('a list that breaks off is refused', async (t) => {
  const reader = listItems(pieces(Buffer.from('{"items":[{"a":1},{"b":'), [4]), 'pods');
  t.deepEqual((await reader.next()).value, { a: 1 });
  await t.throwsAsync(reader.next(), { code: 'KUBERNETES_INVALID' });
});

test('events are lines', async (t) => {
  await fc.assert(
    fc.asyncProperty(fc.array(object, { maxLength: 6 }), sizes, async (events, cut) => {
      const lines = events.map((event) => `${JSON.stringify(event)}\n`).join('');
      const read: unknown[] = [];
      for await (const batch of jsonLines(pieces(Buffer.from(lines), cut), 'pods')) {
        read.push(...batch);
      }
      t.deepEqual(read, JSON.parse(JSON.stringify(events)) as unknown[]);
    }),
    { numRuns: 200 },
  );
});
