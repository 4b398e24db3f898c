import { MeshError } from '../../lib/errors/mesh-error.ts';
import { judgePassage } from '../../lib/state/waypoint-guard.ts';
import type { Arrived, Passage } from '../../lib/state/waypoint-guard.ts';
import { decided } from './lookups.ts';
import type { PodContext } from './thread-context.ts';

/**
 * Tells which way inbound traffic came. Rejects with STATE_UNAVAILABLE when the mesh cannot tell in time; where traffic may go
 * around waypoints, that is no reason to refuse it, and what it says of its client is not believed.
 */
export function findPassage(pod: PodContext, arrived: Arrived): Passage | Promise<Passage> {
  const passage = decided(pod, (view) => judgePassage(view, arrived));
  if (!(passage instanceof Promise) || pod.thread.settings.waypointBypass === 'deny')
    return passage;
  return passage.catch((error: unknown) => {
    if (!(error instanceof MeshError) || error.code !== 'STATE_UNAVAILABLE') throw error;
    return { kind: 'bypassed', reason: `the waypoint cannot be resolved: ${error.message}` };
  });
}

/** Throws ROUTE_WAYPOINT_BYPASSED for traffic that went around a waypoint; where that is allowed, it is counted. */
export function assertPassage(pod: PodContext, passage: Passage): void {
  if (passage.kind !== 'bypassed') return;
  if (pod.thread.settings.waypointBypass === 'deny') {
    throw new MeshError('ROUTE_WAYPOINT_BYPASSED', `waypoint bypassed: ${passage.reason}`);
  }
  const { metrics, log } = pod.thread;
  // Only the first one is logged; the counter has the number of the later ones.
  if (metrics.waypointsBypassed === 0) {
    log.warn({ podUid: pod.pod.uid, reason: passage.reason }, 'waypoint.bypassed');
  }
  metrics.waypointsBypassed += 1;
}
