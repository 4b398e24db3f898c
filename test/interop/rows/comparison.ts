/** Objects whose translation by both control planes is compared. */
import type { TestObject } from '../../kubernetes/support/cluster.ts';

/** A comparison. */
export interface Comparison {
  readonly title: string;
  /** Rows of the specification that it compares. */
  readonly rows: readonly string[];
  /** Labels of the namespace. */
  readonly labels?: Readonly<Record<string, string>>;
  /** The objects, or their YAML, in the namespace. */
  objects(namespace: string): readonly (TestObject | string)[];
}

let last = 0;

/** An address that no other object has. */
export function freshIp(): string {
  last += 1;
  return `10.245.${last >> 8}.${last & 255}`;
}
