import type { Readiness } from '../../lib/actor/actor.ts';

/** Adds a blocker that may come and go; the result says whether it blocks from then on. It blocks from the beginning. */
export function readinessBlocker(readiness: Readiness, name: string): (blocking: boolean) => void {
  let release: (() => void) | null = readiness.block(name);
  return (blocking) => {
    if (blocking) release ??= readiness.block(name);
    else {
      release?.();
      release = null;
    }
  };
}
