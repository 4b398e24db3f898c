/** Loaded into the measured process by `--import`: answers its parent with the longest turns and the memory. */
import { Turns } from '../bench/lib/turns.ts';
import type { LongestTurns } from '../bench/lib/turns.ts';

/** A request of the parent: forget the turns so far, or tell them; only this is answered. */
export type ObservedRequest = 'begin' | 'report';

/** An answer. */
export interface Observed extends LongestTurns {
  readonly heapMb: number;
  readonly externalMb: number;
  readonly cpuMs: number;
}

const MB = 1_048_576;
const turns = new Turns();

process.on('message', (request: ObservedRequest) => {
  if (request === 'begin') {
    turns.begin();
    return;
  }
  void turns.longest().then((longest) => {
    const { heapUsed, external } = process.memoryUsage();
    const { user, system } = process.cpuUsage();
    const observed: Observed = {
      ...longest,
      heapMb: heapUsed / MB,
      externalMb: external / MB,
      cpuMs: (user + system) / 1_000,
    };
    process.send?.(observed);
  });
});
// The channel alone must not keep the process alive.
process.channel?.unref();
