/** Values by key that computations read: the base of sources and of mapped collections. */
import { MapOfSets } from '../collections/map-of-sets.ts';
import { Watched } from './cell.ts';
import type { Graph } from './graph.ts';
import type { Readable, ReadableIndex, Reading } from './reading.ts';

/** Told of a changed value; undefined where there is none. */
export type ChangeListener<V> = (key: string, before: V | undefined, after: V | undefined) => void;

/** A key or an index value that computations read. It leaves its map with its last dependent. */
class Watch extends Watched {
  readonly #key: string;
  readonly #home: Map<string, Watch>;

  constructor(home: Map<string, Watch>, key: string) {
    super();
    this.#home = home;
    this.#key = key;
  }

  released(): void {
    this.#home.delete(this.#key);
  }

  /** The watch of a key, made when it is missing. */
  static of(home: Map<string, Watch>, key: string): Watch {
    const known = home.get(key);
    if (known !== undefined) return known;
    const made = new Watch(home, key);
    home.set(key, made);
    return made;
  }
}

/** Values by key. */
export abstract class Keyed<V> implements Readable<V> {
  readonly rank: number;
  protected readonly graph: Graph;
  readonly #watches = new Map<string, Watch>();
  readonly #indexes: Index<V>[] = [];
  readonly #listeners: ChangeListener<V>[] = [];

  constructor(graph: Graph) {
    this.graph = graph;
    this.rank = graph.nextRank();
  }

  /** Number of values. */
  abstract get size(): number;

  /** The value of a key, for readers outside of computations. */
  abstract get(key: string): V | undefined;

  read(reading: Reading, key: string): V | undefined {
    reading.note(Watch.of(this.#watches, key));
    return this.get(key);
  }

  /** Indexes the values by what `valuesOf` returns, which must be pure. Make indexes before values. */
  index(valuesOf: (value: V, key: string) => Iterable<string>): Index<V> {
    const index = new Index(this.graph, this, valuesOf);
    this.#indexes.push(index);
    return index;
  }

  /** Calls `listener` with each change, as it happens. */
  onChange(listener: ChangeListener<V>): void {
    this.#listeners.push(listener);
  }

  /** Tells indexes, readers and listeners of a change; the value is already replaced. */
  protected tell(key: string, before: V | undefined, after: V | undefined): void {
    for (const index of this.#indexes) index.update(key, before, after);
    this.graph.changed(this.#watches.get(key));
    for (const listener of this.#listeners) listener(key, before, after);
  }
}

/** The keys of a collection by a property of their values, such as a namespace or a label. */
export class Index<V> implements ReadableIndex<V> {
  readonly #graph: Graph;
  readonly #of: Keyed<V>;
  readonly #valuesOf: (value: V, key: string) => Iterable<string>;
  readonly #keys = new MapOfSets<string>();
  readonly #watches = new Map<string, Watch>();

  constructor(graph: Graph, of: Keyed<V>, valuesOf: (value: V, key: string) => Iterable<string>) {
    this.#graph = graph;
    this.#of = of;
    this.#valuesOf = valuesOf;
  }

  get rank(): number {
    return this.#of.rank;
  }

  read(reading: Reading, value: string): readonly V[] {
    reading.note(Watch.of(this.#watches, value));
    return this.get(value);
  }

  /** The values under an index value, in the order of their keys, for readers outside of computations. */
  get(value: string): readonly V[] {
    const keys = [...this.#keys.get(value)];
    if (keys.length > 1) keys.sort();
    return keys.map((key) => this.#of.get(key)).filter((found) => found !== undefined);
  }

  /** Moves a key; the collection calls it. Whoever read an index value under which the key was or is must look again. */
  update(key: string, before: V | undefined, after: V | undefined): void {
    const old = new Set(before === undefined ? [] : this.#valuesOf(before, key));
    const now = new Set(after === undefined ? [] : this.#valuesOf(after, key));
    for (const value of old) if (!now.has(value)) this.#keys.delete(value, key);
    for (const value of now) if (!old.has(value)) this.#keys.add(value, key);
    for (const value of new Set([...old, ...now])) this.#graph.changed(this.#watches.get(value));
  }
}
