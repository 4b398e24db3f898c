/** Times without a proxy on a node, and which failures of connections they explain. Pure. */
import type { LoadFailure } from './load.ts';

/** An end that is seen elsewhere a moment before or after. */
export const SLACK_MS = 1_000;

/** A proxy that was killed and came back. Times are in milliseconds since the epoch. */
export interface Killed {
  readonly node: string;
  /** Before and after the signal was sent. */
  readonly from: number;
  readonly dead: number;
  /** When its pod was ready again. */
  readonly ready: number;
  /** From the end of its container to the start of the next one, which kubelet delays after repeated ends; in whole seconds. */
  readonly restartMs: number;
}

/** A time in which a node's proxy carried nothing. */
export interface Outage extends Killed {
  /** When the first connection within the node began that was answered again. */
  readonly to: number;
}

/** The outage of a killed proxy, by the beginnings of the answered connections from a pod of its node to another one there. */
export function outageOf(killed: Killed, answered: readonly number[]): Outage {
  const to = answered.find((begun) => begun >= killed.dead);
  if (to === undefined) throw new Error(`nothing was answered again on ${killed.node}`);
  return { ...killed, to };
}

/** Whether a failure of a connection between two nodes is one that a killed proxy carried. */
export function explained(
  failure: LoadFailure,
  nodes: readonly string[],
  outages: readonly Outage[],
): boolean {
  const at = Date.parse(failure.at);
  const since = failure.what === 'kept connection' ? at : Date.parse(failure.since);
  return outages.some(
    ({ node, from, to }) => nodes.includes(node) && since <= to + SLACK_MS && at >= from - SLACK_MS,
  );
}
