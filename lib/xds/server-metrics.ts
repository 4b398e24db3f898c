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
  /** Counts a response that was encoded; other clients share it. */
  encoded(type: string): void;
  /** Notes how long a client waited for the last response of its changes. */
  converged(waitedMs: number): void;
}

/** Values that a scrape reads. */
export interface DeltaServerGauges {
  streams(): number;
  /** Clients that wait for their turn. */
  waiting(): number;
  /** Bytes of answers that are kept for other clients. */
  keptBytes(): number;
}

const CONVERGENCE_BUCKETS_SECONDS = [0.01, 0.1, 0.25, 0.5, 1, 3, 5, 10, 20, 30, 60];

/** Declares the metrics of a delta server. */
export function deltaServerMetrics(
  registry: MetricRegistry,
  gauges: DeltaServerGauges,
): DeltaServerMetrics {
  registry.gauge('pilot_xds', 'Streams that are open', [], (gauge) => gauge.set(gauges.streams()));
  registry.gauge('weft_xds_push_waiting', 'Clients that wait to be written to', [], (gauge) =>
    gauge.set(gauges.waiting()),
  );
  registry.gauge(
    'weft_xds_kept_answers_bytes',
    'Bytes of encoded responses that clients share',
    [],
    (gauge) => gauge.set(gauges.keptBytes()),
  );
  const convergence = registry.histogram(
    'pilot_proxy_convergence_time',
    'Seconds from a change to the last response that tells a client of it',
    CONVERGENCE_BUCKETS_SECONDS,
  );
  const encoded = registry.counter(
    'weft_xds_responses_encoded_total',
    'Responses encoded; the others were shared',
    ['type'],
  );
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
    encoded: (type) => encoded.inc({ type: shortType(type) }),
    converged: (waitedMs) => convergence.observe(waitedMs / 1_000),
  };
}

/** The label of a type. Clients choose types, so those outside of the workload API share one value. */
function shortType(type: string): string {
  if (type.endsWith('/istio.workload.Address')) return 'WDS';
  return type.endsWith('/istio.security.Authorization') ? 'WADS' : 'unknown';
}
