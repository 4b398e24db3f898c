/** Removals of addresses that the ingester of a mesh holds (docs/decisions/held-removals.md). */
import { ACCEPTED_BOARD, acceptedSchema, stateAccept } from '../../lib/bus/catalog.ts';
import type { Bus } from '../../lib/bus/redis-bus.ts';
import { systemClock } from '../../lib/clock/clock.ts';
import { readTable } from './mesh-bus.ts';
import { requestWork } from './work-request.ts';

/** A summary of what is held; times as ISO texts. */
export interface HeldSummary {
  readonly addresses: number;
  /** When the first and the last of them were removed by the control plane. */
  readonly since: string;
  readonly upTo: string;
}

const ACCEPT = {
  job: stateAccept,
  board: ACCEPTED_BOARD,
  answer: acceptedSchema,
  actor: 'the xds-ingester',
};

/** Reads what is held; null when nothing is. */
export async function readHeld(bus: Bus): Promise<HeldSummary | null> {
  const rows = await readTable(bus, 'removals', 'mesh');
  const times = [...rows.values()].map((value) => Buffer.from(value).toString()).sort();
  const [since] = times;
  const upTo = times.at(-1);
  if (since === undefined || upTo === undefined) return null;
  return { addresses: rows.size, since, upTo };
}

/** Tells the ingester to apply what was held by `upTo`; resolves with the number of addresses. */
export async function acceptHeld(bus: Bus, upTo: string): Promise<number> {
  const { applied } = await requestWork(bus, ACCEPT, { upTo }, systemClock);
  return applied;
}

/** One line about what is held. */
export function heldLine({ addresses, since }: HeldSummary): string {
  return `the removal of ${addresses} addresses is held since ${since}; to apply it now: weft state accept`;
}
