/** The label set of Istio's TCP metrics (docs/spec/observability.md §2.1). */
import { workloadIdentity } from '../net/spiffe.ts';

/** A workload as its own baggage header describes it; null where it is silent. */
export interface DescribedWorkload {
  readonly clusterId: string | null;
  readonly namespace: string | null;
  readonly workloadName: string | null;
  readonly canonicalName: string | null;
  readonly canonicalRevision: string | null;
  readonly region: string | null;
  readonly zone: string | null;
}

/** What the labels take from a workload the mesh knows. */
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

/** What the labels take from a service. */
export interface TrafficService {
  readonly name: string;
  readonly namespace: string;
  readonly hostname: string;
}

/** Who talks to whom, and how. */
export interface TrafficFacts {
  readonly reporter: 'source' | 'destination';
  readonly sourceWorkload: TrafficWorkload | null;
  /** What the peer says of itself; used where its workload is unknown. */
  readonly sourceBaggage: DescribedWorkload | null;
  /** From TLS alone, null for plaintext. */
  readonly sourceIdentity: string | null;
  readonly destinationWorkload: TrafficWorkload | null;
  /** What the far end of a tunnel through a gateway says of itself; stands in place of the gateway. */
  readonly destinationBaggage: DescribedWorkload | null;
  /** The destination's proven identity, where it is not the workload's configured one. */
  readonly destinationIdentity: string | null;
  readonly destinationService: TrafficService | null;
  readonly mutualTls: boolean;
}

/** Labels in the order they are emitted. */
export type TrafficLabels = readonly (readonly [name: string, value: string])[];

const UNKNOWN = 'unknown';

/** Position of `response_flags`, which differs between the counters of one connection. */
export const RESPONSE_FLAGS_INDEX = 21;

/** The labels of a connection, `response_flags` being `-`. */
export function trafficLabels(facts: TrafficFacts): TrafficLabels {
  const { sourceWorkload, destinationBaggage, destinationService: service } = facts;
  // A gateway's own labels must not mix with those of what lies behind it.
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

/** The same connection as the mesh alone knows it: what a peer says of itself is left out. */
export function withoutBaggage(facts: TrafficFacts): TrafficFacts {
  // What lies behind a gateway is not the gateway, whether it is described or not.
  const destinationBaggage = facts.destinationBaggage === null ? null : SILENT;
  return { ...facts, sourceBaggage: null, destinationBaggage };
}

/** The same connection with nothing known of either end. */
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

/** What the mesh knows goes before what a workload says of itself. */
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

/** The labels of a source that is known, all `unknown` for null. Its principal is TLS's to say, so it has none. */
export function sourceLabels(source: TrafficWorkload | null): TrafficLabels {
  return partyLabels('source', described(source, null), null);
}
