import test from 'ava';
import { Graph } from '../../../../lib/derived/graph.ts';
import { Mapped } from '../../../../lib/derived/mapped.ts';
import { Memo } from '../../../../lib/derived/memo.ts';
import { Source } from '../../../../lib/derived/source.ts';
import { InvariantError } from '../../../../lib/errors/assert.ts';

function makeGraph(): { graph: Graph; failures: string[]; settle: () => number } {
  const failures: string[] = [];
  const graph = new Graph((key, error) => failures.push(`${key}: ${String(error)}`));
  const settle = (): number => {
    const before = graph.computed;
    for (const _ of graph.settle());
    return graph.computed - before;
  };
  return { graph, failures, settle };
}

test('a change computes again only what read it', (t) => {
  const { graph, settle } = makeGraph();
  const nodes = new Source<string>(graph);
  const pods = new Source<string>(graph);
  const zones = new Mapped(graph, pods, (reading, node) => reading.get(nodes, node) ?? 'none');
  for (let index = 0; index < 100; index += 1) pods.set(`pod-${index}`, `node-${index % 10}`);
  t.is(settle(), 100);
  nodes.set('node-1', 'zone-a');
  t.is(settle(), 10);
  t.is(zones.get('pod-11'), 'zone-a');
  t.is(zones.get('pod-12'), 'none');
  nodes.set('node-99', 'zone-b');
  t.is(settle(), 0);
  pods.set('pod-3', 'node-1');
  t.is(settle(), 1);
  pods.set('pod-4', undefined);
  t.is(settle(), 1);
  t.is(zones.get('pod-4'), undefined);
});

test('a value that stays equal stops the change', (t) => {
  const { graph, settle } = makeGraph();
  const policies = new Source<{ strict: boolean; comment: string }>(graph);
  const pods = new Source<string>(graph);
  const mode = new Memo(graph, (reading, name) => ({
    strict: reading.get(policies, name)?.strict,
  }));
  const mapped = new Mapped(graph, pods, (reading) => reading.get(mode, 'root')?.strict ?? false);
  for (let index = 0; index < 1_000; index += 1) pods.set(`pod-${index}`, '');
  settle();
  policies.set('root', { strict: false, comment: '' });
  t.is(settle(), 1_001);
  policies.set('root', { strict: false, comment: 'still not strict' });
  t.is(settle(), 1);
  policies.set('root', { strict: true, comment: '' });
  t.is(settle(), 1_001);
  t.true(mapped.get('pod-7'));
});

test('each step is small, also when thousands read what changed', (t) => {
  const { graph } = makeGraph();
  const root = new Source<number>(graph);
  const pods = new Source<string>(graph);
  const mapped = new Mapped(graph, pods, (reading) => reading.get(root, ''));
  for (let index = 0; index < 5_000; index += 1) pods.set(`pod-${index}`, '');
  for (const _ of graph.settle());
  root.set('', 1);
  t.false(graph.settled);
  let steps = 0;
  let most = 0;
  let before = graph.computed;
  for (const _ of graph.settle()) {
    steps += 1;
    most = Math.max(most, graph.computed - before);
    before = graph.computed;
  }
  t.is(most, 1);
  t.true(steps >= 5_000);
  t.is(mapped.get('pod-4999'), 1);
  t.true(graph.settled);
});

test('a value on demand is dropped with its last reader', (t) => {
  const { graph, settle } = makeGraph();
  const pods = new Source<string>(graph);
  const labels = new Memo(graph, (_reading, text) => text.length);
  const mapped = new Mapped(graph, pods, (reading, text) => reading.get(labels, text));
  pods.set('a', 'x');
  pods.set('b', 'x');
  pods.set('c', 'yy');
  settle();
  t.is(labels.size, 2);
  t.is(mapped.get('c'), 2);
  pods.set('c', undefined);
  pods.set('a', 'zzz');
  settle();
  t.is(labels.size, 2);
  pods.set('a', undefined);
  settle();
  t.is(labels.size, 1);
});

test('a computation that throws keeps its old value and is tried again when something changes that it read', (t) => {
  const { graph, failures, settle } = makeGraph();
  const numbers = new Source<number>(graph);
  const names = new Source<string>(graph);
  const mapped = new Mapped(graph, names, (reading, name) => {
    const number = reading.get(numbers, name) ?? 0;
    if (number < 0) throw new Error('negative');
    return number;
  });
  names.set('a', 'n');
  numbers.set('n', 1);
  settle();
  numbers.set('n', -1);
  settle();
  t.deepEqual(failures, ['a: Error: negative']);
  t.is(mapped.get('a'), 1);
  numbers.set('n', 2);
  settle();
  t.is(mapped.get('a'), 2);
});

test('a computation cannot read a collection made after its own', (t) => {
  const { graph, settle } = makeGraph();
  const first = new Source<string>(graph);
  const mapped: Mapped<string, string> = new Mapped(graph, first, (reading) =>
    reading.get(later, 'a'),
  );
  const later = new Source<string>(graph);
  first.set('a', '');
  t.throws(settle, { instanceOf: InvariantError });
  t.is(mapped.get('a'), undefined);
});
