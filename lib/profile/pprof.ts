/** Converts V8's profiles to pprof's form (github.com/google/pprof, profile.proto), which `go tool pprof` reads. */
import type { HeapProfiler, Profiler, Runtime } from 'node:inspector';
import {
  Function as PprofFunction,
  Label,
  Line,
  Location,
  Profile,
  Sample,
  StringTable,
  ValueType,
} from 'pprof-format';

/** A profile and the name of its thread. */
export interface OfThread<T> {
  readonly thread: string;
  readonly profile: T;
}

const NS_PER_US = 1_000;
const NS_PER_SECOND = 1_000_000_000;

/** V8's names of nodes without work. */
const NOT_WORK: ReadonlySet<string> = new Set(['(idle)', '(root)']);

/** The module that controls V8's profiler. */
const PROFILER = 'node:inspector';

/** Makes one CPU profile of several threads; each sample has its thread as a label. Values: samples, and processor time in nanoseconds. */
export function cpuToPprof(
  threads: readonly OfThread<Profiler.Profile>[],
  frequencyHz: number,
): Uint8Array {
  const builder = new PprofBuilder([
    ['samples', 'count'],
    ['cpu', 'nanoseconds'],
  ]);
  let durationUs = 0;
  for (const { thread, profile } of threads) {
    durationUs = Math.max(durationUs, profile.endTime - profile.startTime);
    const tree = treeOf(profile.nodes);
    const own = new Map<number, [count: number, ns: number]>();
    for (const [index, id] of (profile.samples ?? []).entries()) {
      const values = own.get(id) ?? [0, 0];
      values[0] += 1;
      values[1] += Math.max(0, profile.timeDeltas?.[index] ?? 0) * NS_PER_US;
      own.set(id, values);
    }
    for (const [id, values] of own) {
      const stack = stackOf(tree, id);
      const [leaf] = stack;
      // The start of the profiler itself does not belong to the profile.
      if (leaf === undefined || NOT_WORK.has(leaf.functionName) || leaf.url === PROFILER) continue;
      builder.add(stack, values, thread);
    }
  }
  return builder.encode({
    periodType: ['cpu', 'nanoseconds'],
    period: Math.round(NS_PER_SECOND / frequencyHz),
    durationNs: durationUs * NS_PER_US,
  });
}

/** Makes one heap profile of several threads. Value: live bytes, as V8 estimates them from its samples. */
export function heapToPprof(
  threads: readonly OfThread<HeapProfiler.SamplingHeapProfile>[],
  sampleBytes: number,
): Uint8Array {
  const builder = new PprofBuilder([['inuse_space', 'bytes']]);
  for (const { thread, profile } of threads) {
    const open: { node: HeapProfiler.SamplingHeapProfileNode; stack: Runtime.CallFrame[] }[] = [
      { node: profile.head, stack: [] },
    ];
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      const { node, stack } = next;
      const frames = NOT_WORK.has(node.callFrame.functionName) ? stack : [node.callFrame, ...stack];
      if (node.selfSize > 0) builder.add(frames, [node.selfSize], thread);
      for (const child of node.children) open.push({ node: child, stack: frames });
    }
  }
  return builder.encode({ periodType: ['space', 'bytes'], period: sampleBytes, durationNs: 0 });
}

interface Tree {
  readonly nodes: ReadonlyMap<number, Profiler.ProfileNode>;
  readonly parents: ReadonlyMap<number, number>;
}

function treeOf(nodes: readonly Profiler.ProfileNode[]): Tree {
  const parents = new Map<number, number>();
  for (const node of nodes) for (const child of node.children ?? []) parents.set(child, node.id);
  return { nodes: new Map(nodes.map((node) => [node.id, node])), parents };
}

/** Returns the stack, leaf first. */
function stackOf({ nodes, parents }: Tree, leaf: number): Runtime.CallFrame[] {
  const stack: Runtime.CallFrame[] = [];
  for (let id: number | undefined = leaf; id !== undefined; id = parents.get(id)) {
    const frame = nodes.get(id)?.callFrame;
    if (frame === undefined) break;
    if (frame.functionName !== '(root)') stack.push(frame);
  }
  return stack;
}

/** Collects samples; each function and location is stored once. */
class PprofBuilder {
  readonly #strings = new StringTable();
  readonly #types: readonly ValueType[];
  readonly #samples: Sample[] = [];
  readonly #functions = new Map<string, PprofFunction>();
  readonly #locations = new Map<string, Location>();

  constructor(types: readonly (readonly [type: string, unit: string])[]) {
    this.#types = types.map(([type, unit]) => this.#valueType(type, unit));
  }

  add(stack: readonly Runtime.CallFrame[], values: readonly number[], thread: string): void {
    if (stack.length === 0) return;
    this.#samples.push(
      new Sample({
        locationId: stack.map((frame) => this.#location(frame)),
        value: [...values],
        label: [
          new Label({ key: this.#strings.dedup('thread'), str: this.#strings.dedup(thread) }),
        ],
      }),
    );
  }

  encode(parts: {
    readonly periodType: readonly [type: string, unit: string];
    readonly period: number;
    readonly durationNs: number;
  }): Uint8Array {
    return new Profile({
      sampleType: [...this.#types],
      sample: this.#samples,
      location: [...this.#locations.values()],
      function: [...this.#functions.values()],
      stringTable: this.#strings,
      timeNanos: BigInt(Date.now()) * 1_000_000n,
      durationNanos: Math.round(parts.durationNs),
      periodType: this.#valueType(...parts.periodType),
      period: parts.period,
    }).encode();
  }

  #valueType(type: string, unit: string): ValueType {
    return new ValueType({ type: this.#strings.dedup(type), unit: this.#strings.dedup(unit) });
  }

  #location(frame: Runtime.CallFrame): number {
    const line = Math.max(0, frame.lineNumber) + 1;
    const key = `${frame.functionName}\n${frame.url}\n${line}`;
    const known = this.#locations.get(key);
    if (known !== undefined) return Number(known.id);
    const id = this.#locations.size + 1;
    const functionId = this.#function(frame, line);
    this.#locations.set(key, new Location({ id, line: [new Line({ functionId, line })] }));
    return id;
  }

  #function(frame: Runtime.CallFrame, line: number): number {
    const key = `${frame.functionName}\n${frame.url}\n${line}`;
    const known = this.#functions.get(key);
    if (known !== undefined) return Number(known.id);
    const id = this.#functions.size + 1;
    const name = this.#strings.dedup(
      frame.functionName === '' ? '(anonymous)' : frame.functionName,
    );
    this.#functions.set(
      key,
      new PprofFunction({
        id,
        name,
        systemName: name,
        filename: this.#strings.dedup(frame.url),
        startLine: line,
      }),
    );
    return id;
  }
}
