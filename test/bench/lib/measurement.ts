/** A measurement gives one or more figures of every peer; peers take turns, so that noise meets all alike. */
import { median } from './goal.ts';
import type { Goal } from './goal.ts';
import type { Target } from './loads.ts';
import { PEERS_OF } from './rig.ts';
import type { Path, PeerName, Rig } from './rig.ts';

/** One line of the table. */
export interface Figure {
  readonly label: string;
  /** Digits after the point. */
  readonly digits: number;
  readonly goal?: Goal;
}

/** A load, and the figures that come out of it. */
export interface Measurement {
  readonly path: Path;
  /** Peers besides those that the path has always; without, all of them. */
  readonly peers?: readonly PeerName[];
  readonly figures: readonly Figure[];
  /** True when the short form runs it for Weft alone; absent when it leaves it out; `all` for every peer. */
  readonly short?: 'weft' | 'all';
  /** One value for each figure. */
  run(target: Target, seconds: number): Promise<readonly number[]>;
}

/** A line with its values: the median of the rounds, and each round. */
export interface FigureResult {
  readonly figure: Figure;
  readonly values: ReadonlyMap<PeerName, number>;
  readonly rounds: ReadonlyMap<PeerName, readonly number[]>;
}

/** How long and how often. */
export interface Pace {
  readonly seconds: number;
  readonly rounds: number;
}

/** Runs the load for each peer in each round, every round starting with another peer. */
export async function measure(
  rig: Rig,
  measurement: Measurement,
  peers: ReadonlySet<PeerName>,
  pace: Pace,
): Promise<readonly FigureResult[]> {
  const chosen = peersOf(measurement, peers);
  const seen = new Map<PeerName, (readonly number[])[]>(chosen.map((peer) => [peer, []]));
  for (let round = 0; round < pace.rounds; round += 1) {
    for (let turn = 0; turn < chosen.length; turn += 1) {
      const peer = chosen[(round + turn) % chosen.length];
      if (peer === undefined) continue;
      const values = await measurement.run(rig.target(peer, measurement.path), pace.seconds);
      seen.get(peer)?.push(values);
    }
  }
  return measurement.figures.map((figure, index) => {
    const rounds = new Map(
      [...seen].map(([peer, lists]) => [peer, lists.map((list) => list[index] ?? Number.NaN)]),
    );
    const values = new Map([...rounds].map(([peer, list]) => [peer, median(list)]));
    return { figure, values, rounds };
  });
}

/** Who takes part, of those that are wanted. */
export function peersOf(
  { path, peers }: Pick<Measurement, 'path' | 'peers'>,
  wanted: ReadonlySet<PeerName>,
): readonly PeerName[] {
  return (peers ?? PEERS_OF[path]).filter((peer) => wanted.has(peer));
}
