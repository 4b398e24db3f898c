import type { MetricRegistry } from '../../lib/metrics/registry.ts';

/** Counters of the fetcher. */
export interface FetcherMetrics {
  signed(seconds: number): void;
  failed(code: string): void;
  unknownRoot(): void;
}

/** Buckets for one CA call: a local CA answers in milliseconds, a busy one in seconds. */
const SECONDS_BUCKETS = [0.005, 0.02, 0.05, 0.1, 0.5, 1, 5, 10];

/** Declares the fetcher's metrics; every scrape calls the functions of `sources`. */
export function fetcherMetrics(
  registry: MetricRegistry,
  sources: { readonly outstanding: () => number; readonly identities: () => number },
): FetcherMetrics {
  registry.gauge('weft_cert_fetcher_outstanding', 'CA calls under way', [], (gauge) =>
    gauge.set(sources.outstanding()),
  );
  registry.gauge(
    'weft_cert_fetcher_identities',
    "Identities of this node's workloads",
    [],
    (gauge) => gauge.set(sources.identities()),
  );
  const duration = registry.histogram(
    'weft_cert_fetcher_sign_seconds',
    'Time the CA took to sign',
    SECONDS_BUCKETS,
  );
  const failures = registry.counter(
    'weft_cert_fetcher_failures_total',
    'Attempts that failed, by error code',
    ['code'],
  );
  const roots = registry.counter(
    'weft_cert_fetcher_unknown_roots_total',
    'Roots the CA sent that are not in the trust bundle; never used',
  );
  return {
    signed: (seconds) => duration.observe(seconds),
    failed: (code) => failures.inc({ code }),
    unknownRoot: () => roots.inc(),
  };
}
