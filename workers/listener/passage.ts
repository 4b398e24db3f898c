import { MeshError } from '../../lib/errors/mesh-error.ts';
import { judgePassage } from '../../lib/state/waypoint-guard.ts';
import type { Arrived, Passage } from '../../lib/state/waypoint-guard.ts';
import { decided } from './lookups.ts';
import type { PodContext } from './pod-context.ts';

/** By which way inbound traffic came. Rejects with STATE_UNAVAILABLE when the mesh cannot tell in time. */
export function findPassage(pod: PodContext, arrived: Arrived): Passage | Promise<Passage> {
  return decided(pod.thread.state, (view) => judgePassage(view, arrived));
}

/** Throws ROUTE_WAYPOINT_BYPASSED for traffic that went around a waypoint, unless WEFT_WAYPOINT_BYPASS lets it. */
export function assertPassage(pod: PodContext, passage: Passage): void {
  if (passage.kind !== 'bypassed' || pod.thread.settings.waypointBypass === 'allow') return;
  throw new MeshError('ROUTE_WAYPOINT_BYPASSED', `waypoint bypassed: ${passage.reason}`);
}
