/** Runs measurements, each of which gives one or more figures of every peer. Peers take turns, so that noise affects all equally. */
import { median } from './goal.ts';
import type { Goal } from './goal.ts';
import type { Target } from './loads.ts';
import { processorSeconds } from './process.ts';
import { PEERS_OF } from './rig.ts';
import type { Path, PeerName, Rig } from './rig.ts';

/** One line of the table. */
export interface Figure {
  readonly label: string;
  /** Digits after the point. */
  readonly digits: number;
  readonly goal?: Goal;
}

/** A load and its figures. */
export interface Measurement {
  readonly path: Path;
  /** The peers to measure besides the path's fixed ones; all when absent. */
  readonly peers?: readonly PeerName[];
  readonly figures: readonly Figure[];
  /** The peers of the short form: `weft` or `all`; absent when the short form skips the measurement. */
  readonly short?: 'weft' | 'all';
  /** Runs the load; returns one value for each figure. */
  run(target: Target, seconds: number): Promise<readonly number[]>;
  /** A further figure: the processor time of the proxies for each unit of work. */
  readonly cost?: Cost;
}

/** Processor time for each unit of work, where the processes of a peer can be told apart. */
export interface Cost {
  readonly figure: Figure;
  /** Units of the figure in a second. */
  readonly scale: number;
  /** Units of work, by the values of a run. */
  work(values: readonly number[], seconds: number): number;
}

/** A figure with its values: the median of the rounds, and each round. */
export interface FigureResult {
  readonly figure: Figure;
  readonly values: ReadonlyMap<PeerName, number>;
  readonly rounds: ReadonlyMap<PeerName, readonly number[]>;
}

/** The duration and number of the rounds. */
export interface Pace {
  readonly seconds: number;
  readonly rounds: number;
}

/** Runs the load for each peer in each round; every round starts with another peer. */
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
      seen.get(peer)?.push(await run(rig, peer, measurement, pace.seconds));
    }
  }
  const { figures, cost } = measurement;
  return [...figures, ...(cost === undefined ? [] : [cost.figure])].map((figure, index) => {
    const rounds = new Map(
      [...seen]
        .filter(([, lists]) => lists.every((list) => index < list.length))
        .map(([peer, lists]) => [peer, lists.map((list) => list[index] ?? Number.NaN)]),
    );
    const values = new Map([...rounds].map(([peer, list]) => [peer, median(list)]));
    return { figure, values, rounds };
  });
}

/** Returns the values of one run; the cost is the last one, for peers that have it. */
async function run(
  rig: Rig,
  peer: PeerName,
  { path, cost, run: load }: Measurement,
  seconds: number,
): Promise<readonly number[]> {
  const pids = cost === undefined ? [] : await rig.pids(peer);
  const before = await processorSeconds(pids);
  const values = await load(rig.target(peer, path), seconds);
  if (cost === undefined || pids.length === 0) return values;
  const spent = (await processorSeconds(pids)) - before;
  return [...values, (spent * cost.scale) / cost.work(values, seconds)];
}

/** Selects the wanted peers that take part in a measurement. */
export function peersOf(
  { path, peers }: Pick<Measurement, 'path' | 'peers'>,
  wanted: ReadonlySet<PeerName>,
): readonly PeerName[] {
  return (peers ?? PEERS_OF[path]).filter((peer) => wanted.has(peer));
}
