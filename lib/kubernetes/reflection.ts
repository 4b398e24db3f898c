/** The parts around a reflector: its sink, its options and its counts. */
import type { Clock } from '../clock/clock.ts';
import type { Logger } from '../log/logger.ts';
import type { MetricRegistry } from '../metrics/registry.ts';
import type { KubernetesClient } from './client.ts';
import { MAX_BATCH_OBJECTS } from './limits.ts';
import type { ResourceType } from './resource.ts';

/** A change of one object; a null object is gone. */
export interface ReflectedChange<T> {
  /** `namespace/name`, or the name of an object without a namespace. */
  readonly key: string;
  readonly object: T | null;
}

/** Holds the reduced objects. */
export interface ReflectorSink<T> {
  /** Takes changes in their order, at most {@link MAX_BATCH_OBJECTS}. An object may be the same as before. Must not throw. */
  apply(changes: readonly ReflectedChange<T>[]): void;
  /** The keys of the held objects. */
  keys(): Iterable<string>;
}

/** The objects that a reflector follows. */
export interface ReflectorOptions<T> {
  readonly resource: ResourceType;
  /** Null: all namespaces, or a resource without namespaces. */
  readonly namespace?: string | null;
  readonly fieldSelector?: string;
  /**
   * Returns the fields in use of an object, which always has `apiVersion` and `kind`; null leaves the object out. May throw:
   * the object is then left out, or stays as it was, and the reason is logged.
   */
  readonly reduce: (object: Readonly<Record<string, unknown>>) => T | null;
  readonly kind: string;
  readonly sink: ReflectorSink<T>;
}

/** Collaborators of a reflector. */
export interface ReflectorDeps {
  readonly client: KubernetesClient;
  readonly clock: Clock;
  readonly log: Pick<Logger, 'debug' | 'info' | 'warn'>;
  readonly metrics?: ReflectorMetrics;
}

/** Counts of all reflectors of an actor. */
export interface ReflectorMetrics {
  listed(resource: string, way: 'pages' | 'stream'): void;
  failed(resource: string, code: string): void;
  objectRefused(resource: string): void;
}

/** Declares the metrics of an actor's reflectors. */
export function reflectorMetrics(registry: MetricRegistry): ReflectorMetrics {
  const lists = registry.counter(
    'weft_kubernetes_lists_total',
    'Complete lists of a resource by the way they came: streamed or in pages',
    ['resource', 'way'],
  );
  const failures = registry.counter(
    'weft_kubernetes_source_failures_total',
    'Lists and watches that failed, by error code',
    ['resource', 'code'],
  );
  const refused = registry.counter(
    'weft_kubernetes_objects_refused_total',
    'Objects that could not be read; they stay as they were',
    ['resource'],
  );
  return {
    listed: (resource, way) => lists.inc({ resource, way }),
    failed: (resource, code) => failures.inc({ resource, code }),
    objectRefused: (resource) => refused.inc({ resource }),
  };
}

/** Gathers changes for a sink. */
export class Batch<T> {
  readonly #sink: ReflectorSink<T>;
  #changes: ReflectedChange<T>[] = [];

  constructor(sink: ReflectorSink<T>) {
    this.#sink = sink;
  }

  /** Adds a change; hands all on when they are many. */
  add(change: ReflectedChange<T>): void {
    this.#changes.push(change);
    if (this.#changes.length >= MAX_BATCH_OBJECTS) this.flush();
  }

  /** Hands on what was added. */
  flush(): void {
    if (this.#changes.length === 0) return;
    const changes = this.#changes;
    this.#changes = [];
    this.#sink.apply(changes);
  }
}
