import type { MetricRegistry } from '../metrics/registry.ts';

/** Why a stream was refused or ended early. */
export type StreamRefusalReason =
  | 'not-ready'
  | 'overload'
  | 'address'
  | 'identity'
  | 'account'
  | 'protocol'
  | 'unacknowledged';

/** Counters of a delta server. They have upstream's names where upstream has one. */
export interface DeltaServerMetrics {
  pushed(type: string, resources: number, bytes: number): void;
  rejected(type: string): void;
  stale(type: string): void;
  refused(reason: StreamRefusalReason): void;
  /** Counts a stream that reached its age limit or its token's end; its client resumes. */
  ended(reason: 'age' | 'identity-expired'): void;
}

/** Declares the metrics of a delta server; a scrape calls `streams`. */
export function deltaServerMetrics(
  registry: MetricRegistry,
  streams: () => number,
): DeltaServerMetrics {
  registry.gauge('pilot_xds', 'Streams that are open', [], (gauge) => gauge.set(streams()));
  const pushes = registry.counter('pilot_xds_pushes', 'Responses sent', ['type']);
  const resources = registry.counter('weft_xds_resources_sent_total', 'Resources sent', ['type']);
  const bytes = registry.counter('weft_xds_sent_bytes_total', 'Bytes of responses sent', ['type']);
  const rejects = registry.counter('pilot_total_xds_rejects', 'Responses refused by a client', [
    'type',
  ]);
  const stale = registry.counter('pilot_xds_expired_nonce', 'Requests with an outdated nonce', [
    'type',
  ]);
  const refused = registry.counter('weft_xds_streams_refused_total', 'Streams refused or ended', [
    'reason',
  ]);
  const ended = registry.counter(
    'weft_xds_streams_ended_total',
    'Streams that were ended for their client to open another',
    ['reason'],
  );
  return {
    pushed: (type, count, size) => {
      pushes.inc({ type: shortType(type) });
      resources.inc({ type: shortType(type) }, count);
      bytes.inc({ type: shortType(type) }, size);
    },
    rejected: (type) => rejects.inc({ type: shortType(type) }),
    stale: (type) => stale.inc({ type: shortType(type) }),
    refused: (reason) => refused.inc({ reason }),
    ended: (reason) => ended.inc({ reason }),
  };
}

/** The label of a type. Clients choose types, so those outside of the workload API share one value. */
function shortType(type: string): string {
  if (type.endsWith('/istio.workload.Address')) return 'WDS';
  return type.endsWith('/istio.security.Authorization') ? 'WADS' : 'unknown';
}
