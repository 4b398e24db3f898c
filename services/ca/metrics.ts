import type { Clock } from '../../lib/clock/clock.ts';
import type { MetricRegistry } from '../../lib/metrics/registry.ts';
import type { Authority, AuthoritySource } from './authority.ts';
import type { PodRegistry } from './pods.ts';

/** The reason of a refusal; a closed set, for labels. */
export type RefusalReason =
  | 'overloaded'
  | 'no_token'
  | 'bad_token'
  | 'untrusted_caller'
  | 'bad_identity'
  | 'foreign_trust_domain'
  | 'unknown_caller_pod'
  | 'unknown_node'
  | 'no_such_pod'
  | 'no_pod_registry'
  | 'bad_csr'
  | 'bad_ttl'
  | 'sign_failure';

/** The CA's counters; Istio's names where Istio has one (docs/spec/istiod-ambient.md §4). */
export interface CaMetrics {
  requested(): void;
  refused(reason: RefusalReason): void;
  issued(): void;
}

/** The state that the gauges show at a scrape. */
export interface CaMetricSources {
  readonly authority: Pick<AuthoritySource, 'current' | 'problem' | 'rotation'>;
  readonly pods: Pick<PodRegistry, 'synced'>;
  readonly clock: Clock;
}

/** Declares the CA's metrics. */
export function caMetrics(
  registry: MetricRegistry,
  { authority, pods, clock }: CaMetricSources,
): CaMetrics {
  const current = (): Authority => authority.current;
  declareExpiry(registry, 'root_cert', 'root certificate', () => current().rootExpiresMs, clock);
  declareExpiry(
    registry,
    'cert_chain',
    'signing certificate chain',
    () => current().chainExpiresMs,
    clock,
  );
  registry.gauge(
    'weft_ca_source_usable',
    '1 when the key and certificates in force are those of the folder or Secret, 0 when only memory has them',
    [],
    (gauge) => gauge.set(authority.problem === null ? 1 : 0),
  );
  declareRotation(registry, authority, clock);
  registry.gauge(
    'weft_ca_pod_registry_synced',
    '1 when the pods are known, from the control plane or the cache',
    [],
    (gauge) => gauge.set(pods.synced ? 1 : 0),
  );
  const requests = registry.counter('citadel_server_csr_count', 'Certificate requests received');
  const issued = registry.counter(
    'citadel_server_success_cert_issuance_count',
    'Certificates issued',
  );
  const refused = registry.counter('weft_ca_refusals_total', 'Requests refused, by reason', [
    'reason',
  ]);
  const authentication = registry.counter(
    'citadel_server_authentication_failure_count',
    'Requests whose caller or whose right to the identity could not be established',
  );
  const parsing = registry.counter(
    'citadel_server_csr_parsing_err_count',
    'Certificate signing requests that could not be used',
  );
  const identity = registry.counter(
    'citadel_server_id_extraction_err_count',
    'Requests whose identity could not be read',
  );
  const signing = registry.counter(
    'citadel_server_csr_sign_err_count',
    'Certificates that could not be issued',
    ['error'],
  );
  return {
    requested: () => requests.inc(),
    issued: () => issued.inc(),
    refused(reason) {
      refused.inc({ reason });
      if (reason === 'bad_csr') parsing.inc();
      else if (reason === 'bad_identity') identity.inc();
      else if (reason === 'bad_ttl' || reason === 'sign_failure') signing.inc({ error: reason });
      else if (reason !== 'overloaded') authentication.inc();
    },
  };
}

/** The steps, in the order of a rotation. */
const STEPS = ['prepare', 'distribute', 'sign'] as const;

function declareRotation(
  registry: MetricRegistry,
  authority: Pick<AuthoritySource, 'rotation'>,
  clock: Clock,
): void {
  registry.gauge(
    'weft_ca_rotation_step_seconds',
    'Seconds since the current step of the rotation of the root began; 0 for the other steps',
    ['step'],
    (gauge) => {
      const { rotation } = authority;
      for (const step of STEPS) {
        const seconds = rotation?.step === step ? (clock.now() - rotation.sinceMs) / 1000 : 0;
        gauge.set({ step }, seconds);
      }
    },
  );
  registry.gauge(
    'weft_ca_rotation_missing',
    'Holders of certificates that do not trust the new root yet, by the last reading of this process',
    [],
    (gauge) => gauge.set(authority.rotation?.missing ?? 0),
  );
}

function declareExpiry(
  registry: MetricRegistry,
  what: 'root_cert' | 'cert_chain',
  name: string,
  expiryMs: () => number,
  clock: Clock,
): void {
  registry.gauge(
    `citadel_server_${what}_expiry_timestamp`,
    `When the ${name} expires, seconds since the epoch`,
    [],
    (gauge) => gauge.set(expiryMs() / 1000),
  );
  registry.gauge(
    `citadel_server_${what}_expiry_seconds`,
    `Time until the ${name} expires`,
    [],
    (gauge) => gauge.set((expiryMs() - clock.now()) / 1000),
  );
}
