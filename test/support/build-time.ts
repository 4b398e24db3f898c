/** The time that building may take in a tier of tests. */
import { processEnvironment } from '../../lib/config/env.ts';

/** Names the moment by which the builds of a tier must have ended, milliseconds since the epoch; the runner sets it. */
export const BUILDS_END_AT = 'BUILDS_END_AT';

/** Milliseconds that are left for building, at least one; `otherwiseMs` where nobody set a limit. */
export function buildTimeLeft(otherwiseMs: number): number {
  const end = processEnvironment()[BUILDS_END_AT];
  return end === undefined ? otherwiseMs : Math.max(1, Number(end) - Date.now());
}
