/** Metrics of the DNS proxy of one thread (docs/spec/observability.md §2). */
import type { DnsProtocol } from '../../../lib/dns/response.ts';
import { histogramSeries, observeInto } from '../../../lib/metrics/bucket-counts.ts';
import type { Series, SeriesRow, SeriesWriter } from '../../../lib/metrics/series-memory.ts';
import type { Workload } from '../../../lib/state/model.ts';
import { MAX_DNS_LABEL_SETS } from './limits.ts';

/** The labels of a query. */
export interface QueryFacts {
  readonly type: string;
  readonly protocol: DnsProtocol;
  /** Null while it is not known. */
  readonly source: Workload | null;
}

interface LabelSet {
  readonly labels: Series['labels'];
  readonly requests: SeriesRow;
  /** Series of questions to the name servers; null while there were none. */
  upstream: SeriesRow | null;
}

/** Seconds. */
const DURATION_BOUNDS = [0.0005, 0.001, 0.01, 0.1, 1, 5];
const UNKNOWN = 'unknown';

/** Places in the row of what went to the name servers. */
const FORWARDED = 0;
const FAILED = 1;
const DURATIONS = 2;

/** Counts queries by type, protocol and source. */
export class DnsMetrics {
  /** Queries refused because too many were in progress. */
  refused = 0;
  /** Messages that are no DNS queries. */
  malformed = 0;
  readonly #series: SeriesWriter;
  readonly #sets = new Map<string, LabelSet>();

  constructor(series: SeriesWriter) {
    this.#series = series;
  }

  request(facts: QueryFacts): void {
    this.#set(facts).requests.add(0);
  }

  /** A query went to the name servers, which took so long to answer or to fail. */
  forwarded(facts: QueryFacts, durationMs: number, failed: boolean): void {
    const set = this.#set(facts);
    set.upstream ??= this.#series.row(upstreamSeries(set.labels));
    set.upstream.add(FORWARDED);
    if (failed) set.upstream.add(FAILED);
    observeInto(set.upstream, DURATIONS, DURATION_BOUNDS, durationMs);
  }

  /** Brings the values that stand for the thread up to date. */
  refresh(): void {
    this.#series.publish([
      {
        ...counter('weft_dns_refused_total', 'Queries refused because too many were in progress'),
        value: this.refused,
      },
      {
        ...counter('weft_dns_malformed_total', 'Messages that are no DNS queries'),
        value: this.malformed,
      },
    ]);
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
    const labels = [
      ['request_query_type', type],
      ['request_protocol', protocol],
      ['source_canonical_service', service],
      ['source_canonical_revision', revision],
    ] as const;
    const requests = this.#series.row([
      counter('istio_dns_requests_total', 'Total number of DNS requests (unstable)', labels),
    ]);
    const set: LabelSet = { labels, requests, upstream: null };
    this.#sets.set(key, set);
    return set;
  }
}

function upstreamSeries(labels: Series['labels']): Series[] {
  return [
    counter(
      'istio_dns_upstream_requests_total',
      'Total number of DNS requests forwarded to upstream (unstable)',
      labels,
    ),
    counter(
      'istio_dns_upstream_failures_total',
      'Total number of DNS requests forwarded to upstream that failed (unstable)',
      labels,
    ),
    ...histogramSeries(
      'istio_dns_upstream_request_duration_seconds',
      'Total time of forwarded DNS requests (unstable)',
      labels,
      DURATION_BOUNDS,
    ),
  ];
}

function counter(name: string, help: string, labels: Series['labels'] = []): Series {
  return { name, kind: 'counter', help, labels };
}

function named(text: string | undefined): string {
  return text === undefined || text === '' ? UNKNOWN : text;
}
