import type { MetricRegistry } from '../metrics/registry.ts';

/** Counters of the certificate manager. */
export interface CertificateMetrics {
  /** A certificate came into use. */
  issued(): void;
  /** An attempt failed with this error code. */
  failed(code: string): void;
  /** A root came with a chain and is not in the trust bundle. */
  unknownRoot(): void;
}

/** Sources of the gauges, called at each scrape. */
export interface CertificateFacts {
  counts(): Readonly<Record<'initializing' | 'available' | 'unavailable', number>>;
  hoursToFirstExpiry(): number;
}

/** Declares the manager's metrics. */
export function certificateMetrics(
  registry: MetricRegistry,
  facts: CertificateFacts,
): CertificateMetrics {
  registry.gauge(
    'weft_certificates',
    'Identities of this node by the state of their certificate',
    ['state'],
    (gauge) => {
      for (const [state, value] of Object.entries(facts.counts())) gauge.set({ state }, value);
    },
  );
  registry.gauge(
    'weft_certificates_first_expiry_hours',
    'Hours until the first certificate of this node expires; negative: since one expired; +Inf without a certificate',
    [],
    (gauge) => gauge.set(facts.hoursToFirstExpiry()),
  );
  const issued = registry.counter(
    'weft_certificates_issued_total',
    'Certificates that came into use, renewals included',
  );
  const failures = registry.counter(
    'weft_certificate_failures_total',
    'Attempts to get a certificate that failed',
    ['code'],
  );
  const unknown = registry.counter(
    'weft_certificate_unknown_roots_total',
    'Roots that came with a certificate and are not in the trust bundle',
  );
  return {
    issued: () => issued.inc(),
    failed: (code) => failures.inc({ code }),
    unknownRoot: () => unknown.inc(),
  };
}
