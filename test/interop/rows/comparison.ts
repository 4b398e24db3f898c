/** Objects whose translation by both control planes is compared. */
import type { Cluster, StoredTestObject, TestObject } from '../../kubernetes/support/cluster.ts';
import { pod } from '../../kubernetes/support/objects.ts';
import type { PodOptions } from '../../kubernetes/support/objects.ts';
import { until } from '../../support/until.ts';
import type { Fields } from './canonical.ts';
import type { Conditions } from './conditions.ts';

/** Objects, or their YAML. */
export type Objects = readonly (TestObject | string)[];

/** Resources by name. */
export type Resources = Readonly<Record<string, Fields>>;

/** Labels and annotations of a namespace. */
export interface NamespaceMarks {
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
}

/** A comparison, in a namespace of its own. */
export interface Comparison extends NamespaceMarks {
  readonly title: string;
  /** Rows of the specification that it compares. */
  readonly rows: readonly string[];
  /** A second namespace, where the comparison needs one. */
  readonly second?: NamespaceMarks;
  objects(namespace: string, second: string): Objects;
  /** Does what needs the stored objects, such as their uids. */
  later?(cluster: Cluster, stored: readonly StoredTestObject[]): Promise<unknown>;
  /** Turns istiod's resources into Weft's, where docs/decisions/mapping-deviations.md lists a difference. */
  deviation?(resources: Resources): Resources;
  /** The same for status conditions; `isSecond` tells the second namespace from the first. */
  conditions?(written: Conditions, isSecond: boolean): Conditions;
}

let last = 0;

/** An address that no other object has. */
export function freshIp(): string {
  last += 1;
  return `10.245.${last >> 8}.${last & 255}`;
}

/** A pod with an address and a label of its own, and with changed metadata, spec and status. */
export function podWith(
  namespace: string,
  name: string,
  changes: { readonly metadata?: Fields; readonly spec?: Fields; readonly status?: Fields } = {},
  options: Partial<PodOptions> = {},
): TestObject {
  const plain = pod(namespace, name, { ip: freshIp(), labels: { pod: name }, ...options });
  return {
    ...plain,
    metadata: { ...plain.metadata, ...changes.metadata },
    spec: { ...(plain['spec'] as Fields), ...changes.spec },
    status: { ...(plain['status'] as Fields), ...changes.status },
  };
}

/** Pods that are known only by their labels: name → labels. */
export function podsWith(
  namespace: string,
  labels: Readonly<Record<string, Readonly<Record<string, string>>>>,
): TestObject[] {
  return Object.entries(labels).map(([name, own]) =>
    podWith(namespace, name, {}, { labels: { pod: name, ...own } }),
  );
}

/** Changes the resources whose names end with `suffix`, and leaves the others. */
export function changed(
  resources: Resources,
  suffix: string,
  change: (resource: Fields) => Fields,
): Resources {
  const entries = Object.entries(resources).map(([name, resource]) => [
    name,
    name.endsWith(suffix) ? change(resource) : resource,
  ]);
  return Object.fromEntries(entries) as Resources;
}

/** Waits until objects that are made now are younger than these; times of creation have whole seconds. */
export async function nextSecond(stored: readonly StoredTestObject[]): Promise<void> {
  const times = stored.map(({ metadata }) => Date.parse(metadata.creationTimestamp));
  const next = Math.max(...times) + 1_000;
  await until(() => Date.now() >= next, { what: 'the next second' });
}
