import type { MetricRegistry } from '../../../lib/metrics/registry.ts';

/** Counters of the manifest source. */
export interface ManifestMetrics {
  apiRequest(operation: string, outcome: string): void;
  fileRefused(): void;
  filesBroken(count: number): void;
  malformedEnrolment(): void;
}

/** Values that a scrape reads. */
export interface ManifestGauges {
  transactionsWaiting(): number;
  watchers(): number;
  nodes(): number;
}

/** Declares the metrics of the manifest source. */
export function manifestMetrics(registry: MetricRegistry, gauges: ManifestGauges): ManifestMetrics {
  const requests = registry.counter(
    'weft_control_plane_api_requests_total',
    'Manifest API requests',
    ['operation', 'outcome'],
  );
  const refused = registry.counter(
    'weft_control_plane_manifest_files_refused_total',
    'Manifest files whose new content was refused',
  );
  const broken = registry.gauge(
    'weft_control_plane_manifest_files_broken',
    'Manifest files whose current content is refused',
  );
  const malformed = registry.counter(
    'weft_control_plane_malformed_enrolments_total',
    'Rows of enrolments that cannot be read',
  );
  registry.gauge(
    'weft_control_plane_transactions_waiting',
    'Depth of the store queue',
    [],
    (gauge) => gauge.set(gauges.transactionsWaiting()),
  );
  registry.gauge('weft_control_plane_watchers', 'Watch streams of the manifest API', [], (gauge) =>
    gauge.set(gauges.watchers()),
  );
  registry.gauge('weft_control_plane_nodes', 'Nodes whose enrolments are followed', [], (gauge) =>
    gauge.set(gauges.nodes()),
  );
  return {
    apiRequest: (operation, outcome) => requests.inc({ operation, outcome }),
    fileRefused: () => refused.inc(),
    filesBroken: (count) => broken.set(count),
    malformedEnrolment: () => malformed.inc(),
  };
}
