/** Makes the label set of Istio's TCP metrics (docs/spec/observability.md §2.1). */
import { workloadIdentity } from '../net/spiffe.ts';

/** A workload as its baggage header describes it; null where the header has no value. */
export interface DescribedWorkload {
  readonly clusterId: string | null;
  readonly namespace: string | null;
  readonly workloadName: string | null;
  readonly canonicalName: string | null;
  readonly canonicalRevision: string | null;
  readonly region: string | null;
  readonly zone: string | null;
}

/** The part of a known workload that labels use. */
export interface TrafficWorkload {
  readonly workloadName: string;
  readonly canonicalName: string;
  readonly canonicalRevision: string;
  readonly namespace: string;
  readonly clusterId: string;
  readonly trustDomain: string;
  readonly serviceAccount: string;
  readonly locality: { readonly region: string; readonly zone: string };
}

/** The part of a service that labels use. */
export interface TrafficService {
  readonly name: string;
  readonly namespace: string;
  readonly hostname: string;
}

/** The two ends of a connection, for its labels. */
export interface TrafficFacts {
  readonly reporter: 'source' | 'destination';
  readonly sourceWorkload: TrafficWorkload | null;
  /** The peer's baggage; used when its workload is unknown. */
  readonly sourceBaggage: DescribedWorkload | null;
  /** The identity that TLS proves; null for plaintext. */
  readonly sourceIdentity: string | null;
  readonly destinationWorkload: TrafficWorkload | null;
  /** The baggage of the far end of a tunnel through a gateway; it stands in place of the gateway. */
  readonly destinationBaggage: DescribedWorkload | null;
  /** The destination's proven identity, when it is not the workload's configured one. */
  readonly destinationIdentity: string | null;
  readonly destinationService: TrafficService | null;
  readonly mutualTls: boolean;
}

/** Labels, in the order of output. */
export type TrafficLabels = readonly (readonly [name: string, value: string])[];

const UNKNOWN = 'unknown';

/** Position of `response_flags`, which differs between the counters of one connection. */
export const RESPONSE_FLAGS_INDEX = 21;

/** Returns the labels of a connection; `response_flags` is `-`. */
export function trafficLabels(facts: TrafficFacts): TrafficLabels {
  const { sourceWorkload, destinationBaggage, destinationService: service } = facts;
  // The labels of a gateway must not mix with those of the workload behind it.
  const destinationWorkload = destinationBaggage === null ? facts.destinationWorkload : null;
  const source = described(sourceWorkload, facts.sourceBaggage);
  const destination = described(destinationWorkload, destinationBaggage);
  const labels: (readonly [string, string])[] = [
    ['reporter', facts.reporter],
    ...partyLabels('source', source, facts.sourceIdentity),
    ['destination_service', orUnknown(service?.hostname)],
    ['destination_service_namespace', orUnknown(service?.namespace)],
    ['destination_service_name', orUnknown(service?.name)],
    ...partyLabels(
      'destination',
      destination,
      facts.destinationIdentity ??
        (destinationWorkload === null ? null : workloadIdentity(destinationWorkload)),
    ),
    ['request_protocol', 'tcp'],
    ['response_flags', '-'],
    ['connection_security_policy', facts.mutualTls ? 'mutual_tls' : UNKNOWN],
  ];
  if (sourceWorkload !== null || facts.destinationWorkload !== null) {
    labels.push(
      ['source_region', orUnknown(source.region)],
      ['source_zone', orUnknown(source.zone)],
      ['destination_region', orUnknown(destination.region)],
      ['destination_zone', orUnknown(destination.zone)],
    );
  }
  return labels;
}

const SILENT: DescribedWorkload = Object.freeze({
  clusterId: null,
  namespace: null,
  workloadName: null,
  canonicalName: null,
  canonicalRevision: null,
  region: null,
  zone: null,
});

/** Returns the connection without the baggage of its peers. */
export function withoutBaggage(facts: TrafficFacts): TrafficFacts {
  // The workload behind a gateway is not the gateway, also when it has no baggage.
  const destinationBaggage = facts.destinationBaggage === null ? null : SILENT;
  return { ...facts, sourceBaggage: null, destinationBaggage };
}

/** Returns the connection with both ends unknown. */
export function unnamedFacts({ reporter, mutualTls }: TrafficFacts): TrafficFacts {
  return {
    reporter,
    sourceWorkload: null,
    sourceBaggage: null,
    sourceIdentity: null,
    destinationWorkload: null,
    destinationBaggage: null,
    destinationIdentity: null,
    destinationService: null,
    mutualTls,
  };
}

interface Party {
  readonly workload: string | null;
  readonly service: string | null;
  readonly app: string | null;
  readonly revision: string | null;
  readonly namespace: string | null;
  readonly cluster: string | null;
  readonly region: string | null;
  readonly zone: string | null;
}

/** Returns the labels of an end: the mesh state goes before baggage. */
function described(workload: TrafficWorkload | null, baggage: DescribedWorkload | null): Party {
  return {
    workload: first(workload?.workloadName, baggage?.workloadName),
    service: first(workload?.canonicalName, baggage?.canonicalName),
    app: first(workload?.canonicalName, baggage?.workloadName),
    revision: first(workload?.canonicalRevision, baggage?.canonicalRevision),
    namespace: first(workload?.namespace, baggage?.namespace),
    cluster: first(workload?.clusterId, baggage?.clusterId),
    region: first(workload?.locality.region, baggage?.region),
    zone: first(workload?.locality.zone, baggage?.zone),
  };
}

function partyLabels(
  side: 'source' | 'destination',
  party: Party,
  principal: string | null,
): [string, string][] {
  return [
    [`${side}_workload`, orUnknown(party.workload)],
    [`${side}_canonical_service`, orUnknown(party.service)],
    [`${side}_canonical_revision`, orUnknown(party.revision)],
    [`${side}_workload_namespace`, orUnknown(party.namespace)],
    [`${side}_principal`, orUnknown(principal)],
    [`${side}_app`, orUnknown(party.app)],
    [`${side}_version`, orUnknown(party.revision)],
    [`${side}_cluster`, orUnknown(party.cluster)],
  ];
}

function first(known: string | undefined, said: string | null | undefined): string | null {
  return known === undefined || known === '' ? (said ?? null) : known;
}

function orUnknown(value: string | null | undefined): string {
  return value === null || value === undefined || value === '' ? UNKNOWN : value;
}

/** Returns the labels of a source; all are `unknown` for null. They have no principal, because only TLS proves it. */
export function sourceLabels(source: TrafficWorkload | null): TrafficLabels {
  return partyLabels('source', described(source, null), null);
}
