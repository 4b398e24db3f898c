import test from 'ava';
import * as fc from 'fast-check';
import { Graph } from '../../lib/derived/graph.ts';
import { Mapped } from '../../lib/derived/mapped.ts';
import { Memo } from '../../lib/derived/memo.ts';
import { Source } from '../../lib/derived/source.ts';

interface Item {
  readonly group: string;
  readonly label: string;
}

/** Items read the selectors of their label by a value on demand; groups read other groups by key. */
class Model {
  readonly graph = new Graph((key, error) => {
    throw new Error(`the computation of ${key} failed`, { cause: error });
  });
  readonly items = new Source<Item>(this.graph);
  readonly selectors = new Source<{ readonly label: string; readonly name: string }>(this.graph);
  readonly parents = new Source<string>(this.graph);
  readonly #byLabel = this.selectors.index(({ label }) => [label]);
  readonly #selected = new Memo(this.graph, (reading, label) =>
    reading.list(this.#byLabel, label).map(({ name }) => name),
  );
  readonly #root = new Memo(this.graph, (reading, group) => {
    const above: string[] = [group];
    for (let next = reading.get(this.parents, group); next !== undefined;) {
      if (above.includes(next)) break;
      above.push(next);
      next = reading.get(this.parents, next);
    }
    return above.at(-1) ?? '';
  });
  readonly named = new Mapped(this.graph, this.items, (reading, { group, label }) =>
    label === 'hidden'
      ? undefined
      : { root: reading.get(this.#root, group) ?? '', names: reading.get(this.#selected, label) },
  );
  readonly byRoot = this.named.index(({ root }) => [root]);
  readonly texts = new Mapped(
    this.graph,
    this.named,
    (reading, { root, names }, key) =>
      `${key} ${names?.join()} ${JSON.stringify(reading.list(this.byRoot, root))}`,
    (left, right) => left === right,
  );
  readonly seen = new Map<string, string>();

  constructor() {
    // Ranks follow the order of creation, so the index of `named` may be read by `texts`.
    this.texts.onChange((key, _before, after) => {
      if (after === undefined) this.seen.delete(key);
      else this.seen.set(key, after);
    });
  }

  result(): Record<string, string> {
    for (const _ of this.graph.settle());
    return Object.fromEntries(
      [...this.seen].toSorted(([left], [right]) => (left < right ? -1 : 1)),
    );
  }
}

const key = fc.constantFrom('a', 'b', 'c', 'd');
const label = fc.constantFrom('x', 'y', 'hidden');
const change = fc.oneof(
  fc.record({ on: fc.constant('items' as const), key, group: key, label }),
  fc.record({ on: fc.constant('selectors' as const), key, label, name: key }),
  fc.record({ on: fc.constant('parents' as const), key, to: key }),
  fc.record({ on: fc.constant('remove' as const), key, from: fc.integer({ min: 0, max: 2 }) }),
  fc.record({ on: fc.constant('steps' as const), count: fc.integer({ min: 1, max: 9 }) }),
);
type Change = typeof change extends fc.Arbitrary<infer Value> ? Value : never;

function apply(model: Model, change: Change): void {
  switch (change.on) {
    case 'items':
      return model.items.set(change.key, change);
    case 'selectors':
      return model.selectors.set(change.key, change);
    case 'parents':
      return model.parents.set(change.key, change.to);
    case 'remove':
      return [model.items, model.selectors, model.parents][change.from]?.set(change.key, undefined);
    default: {
      const steps = model.graph.settle();
      for (let count = 0; count < change.count; count += 1) steps.next();
    }
  }
}

test('any sequence of changes, also amid a computation, gives what a computation from scratch gives', (t) => {
  fc.assert(
    fc.property(fc.array(change, { maxLength: 40 }), (changes) => {
      const model = new Model();
      for (const each of changes) apply(model, each);
      const fresh = new Model();
      for (const name of ['items', 'selectors', 'parents'] as const) {
        const [from, to] = [model[name], fresh[name]] as [Source<unknown>, Source<unknown>];
        for (const held of from.keys()) to.set(held, from.get(held));
      }
      t.deepEqual(model.result(), fresh.result());
      const computed = model.graph.computed;
      model.result();
      t.is(model.graph.computed, computed);
    }),
    { numRuns: 300 },
  );
});
