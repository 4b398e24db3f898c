import type { MetricRegistry } from '../../lib/metrics/registry.ts';
import { KINDS } from './manifests/kinds.ts';
import type { Kind } from './manifests/kinds.ts';

/** Counters of the control plane. They have upstream's names where upstream has one. */
export interface ControlPlaneMetrics {
  pushed(waitedMs: number): void;
  mapped(mapMs: number): void;
}

/** Values that a scrape reads. */
export interface ControlPlaneGauges {
  objects(kind: Kind): number;
  resources(type: 'WDS' | 'WADS'): number;
}

const WAIT_BUCKETS_SECONDS = [0.01, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
const MAP_BUCKETS_SECONDS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5];

/** Declares the metrics of the control plane. */
export function controlPlaneMetrics(
  registry: MetricRegistry,
  gauges: ControlPlaneGauges,
): ControlPlaneMetrics {
  const debounce = registry.histogram(
    'pilot_debounce_time',
    'Seconds between the first change of a push and its start',
    WAIT_BUCKETS_SECONDS,
  );
  const mapping = registry.histogram(
    'weft_control_plane_map_seconds',
    'Seconds it took to bring resources up to date',
    MAP_BUCKETS_SECONDS,
  );
  registry.gauge('weft_control_plane_objects', 'Objects held', ['kind'], (gauge) => {
    for (const kind of KINDS) gauge.set({ kind }, gauges.objects(kind));
  });
  registry.gauge('weft_control_plane_resources', 'Resources served', ['type'], (gauge) => {
    for (const type of ['WDS', 'WADS'] as const) gauge.set({ type }, gauges.resources(type));
  });
  return {
    pushed: (waitedMs) => debounce.observe(waitedMs / 1_000),
    mapped: (mapMs) => mapping.observe(mapMs / 1_000),
  };
}
