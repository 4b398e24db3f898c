/** Names that a mesh on demand follows (docs/decisions/on-demand.md). */
import type { Bus } from '../../lib/bus/redis-bus.ts';
import { ON_DEMAND_ROW } from '../../lib/state/wanted-name.ts';
import { readTable } from './mesh-bus.ts';

/** Returns the names that are subscribed and answered; null where the whole mesh is followed. */
export async function readOnDemandNames(bus: Bus): Promise<readonly string[] | null> {
  const rows = await readTable(bus, 'names', 'mesh');
  if (!rows.has(ON_DEMAND_ROW)) return null;
  return [...rows.keys()].filter((name) => name !== ON_DEMAND_ROW).sort();
}

/** One line about the mode. */
export function onDemandLine(names: readonly string[]): string {
  return `the mesh is followed on demand: ${names.length} names are known`;
}
