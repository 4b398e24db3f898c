/** Measures what a new connection takes of a listener thread, where all of Weft's own JavaScript for it runs. */
import { closedLoop } from '../lib/loads.ts';
import type { Target } from '../lib/loads.ts';
import { threadTime } from '../lib/process.ts';

/** Node's name of a worker thread without one of its own. In a node proxy only listener threads are such. */
const LISTENER_THREAD = 'WorkerThread';
const CONNECTIONS = 16;
const US_PER_SECOND = 1e6;

/** Processor microseconds of a proxy's listener threads for each new connection. */
export interface ListenerCost {
  /** Outside of system calls: JavaScript, its garbage collection, the event loop and the addon. */
  readonly user: number;
  readonly system: number;
}

/** Measures each proxy, in the order of `pids`, once `warmSeconds` of the same load have compiled the code. */
export async function listenerCost(
  target: Target,
  pids: readonly number[],
  { warmSeconds, seconds }: { readonly warmSeconds: number; readonly seconds: number },
): Promise<readonly ListenerCost[]> {
  const load = { connections: CONNECTIONS, newConnections: true };
  const times = (): ReturnType<typeof threadTime>[] =>
    pids.map((pid) => threadTime(pid, LISTENER_THREAD));
  await closedLoop(target, { ...load, seconds: warmSeconds });
  const before = await Promise.all(times());
  const { rate } = await closedLoop(target, { ...load, seconds });
  const after = await Promise.all(times());
  const each = US_PER_SECOND / (rate * seconds);
  return after.map(({ user, system }, index) => ({
    user: (user - (before[index]?.user ?? 0)) * each,
    system: (system - (before[index]?.system ?? 0)) * each,
  }));
}
