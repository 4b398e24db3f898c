/** Metrics of the DNS proxy of one thread (docs/spec/observability.md §2). */
import type { DnsProtocol } from '../../../lib/dns/response.ts';
import { BucketCounts } from '../../../lib/metrics/bucket-counts.ts';
import type { Workload } from '../../../lib/state/model.ts';
import type { MetricSample } from '../protocol.ts';
import { MAX_DNS_LABEL_SETS } from './limits.ts';

/** What a query is counted under. */
export interface QueryFacts {
  readonly type: string;
  readonly protocol: DnsProtocol;
  /** Null while it is not known. */
  readonly source: Workload | null;
}

interface LabelSet {
  readonly labels: MetricSample['labels'];
  requests: number;
  forwarded: number;
  failed: number;
  readonly durations: BucketCounts;
}

/** Seconds. */
const DURATION_BOUNDS = [0.0005, 0.001, 0.01, 0.1, 1, 5];
const UNKNOWN = 'unknown';

/** Counts queries by type, protocol and source. */
export class DnsMetrics {
  /** Queries refused because too many were in progress. */
  refused = 0;
  /** Messages that are no DNS queries. */
  malformed = 0;
  readonly #sets = new Map<string, LabelSet>();

  request(facts: QueryFacts): void {
    this.#set(facts).requests += 1;
  }

  /** A query went to the name servers, which took so long to answer or to fail. */
  forwarded(facts: QueryFacts, durationMs: number, failed: boolean): void {
    const set = this.#set(facts);
    set.forwarded += 1;
    if (failed) set.failed += 1;
    set.durations.observe(durationMs);
  }

  samples(): MetricSample[] {
    return [
      ...[...this.#sets.values()].flatMap(setSamples),
      counter(
        'weft_dns_refused_total',
        'Queries refused because too many were in progress',
        [],
        this.refused,
      ),
      counter('weft_dns_malformed_total', 'Messages that are no DNS queries', [], this.malformed),
    ];
  }

  #set({ type, protocol, source }: QueryFacts): LabelSet {
    const service = named(source?.canonicalName);
    const revision = named(source?.canonicalRevision);
    const key = `${type}\n${protocol}\n${service}\n${revision}`;
    const known = this.#sets.get(key);
    if (known !== undefined) return known;
    if (this.#sets.size >= MAX_DNS_LABEL_SETS && source !== null) {
      return this.#set({ type, protocol, source: null });
    }
    const set: LabelSet = {
      labels: [
        ['request_query_type', type],
        ['request_protocol', protocol],
        ['source_canonical_service', service],
        ['source_canonical_revision', revision],
      ],
      requests: 0,
      forwarded: 0,
      failed: 0,
      durations: new BucketCounts(DURATION_BOUNDS),
    };
    this.#sets.set(key, set);
    return set;
  }
}

function setSamples({ labels, requests, forwarded, failed, durations }: LabelSet): MetricSample[] {
  const samples: MetricSample[] = [
    counter(
      'istio_dns_requests_total',
      'Total number of DNS requests (unstable)',
      labels,
      requests,
    ),
  ];
  if (forwarded === 0) return samples;
  return [
    ...samples,
    counter(
      'istio_dns_upstream_requests_total',
      'Total number of DNS requests forwarded to upstream (unstable)',
      labels,
      forwarded,
    ),
    counter(
      'istio_dns_upstream_failures_total',
      'Total number of DNS requests forwarded to upstream that failed (unstable)',
      labels,
      failed,
    ),
    ...durations.samples(
      'istio_dns_upstream_request_duration_seconds',
      'Total time of forwarded DNS requests (unstable)',
      labels,
    ),
  ];
}

function counter(
  name: string,
  help: string,
  labels: MetricSample['labels'],
  value: number,
): MetricSample {
  return { name, kind: 'counter', help, labels, value };
}

function named(text: string | undefined): string {
  return text === undefined || text === '' ? UNKNOWN : text;
}
