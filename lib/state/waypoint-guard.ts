/** Checks that inbound traffic came through the waypoint of its destination (docs/decisions/waypoint-enforcement.md). Pure. */
import { Lookups, workloadOf } from './lookups.ts';
import type { Need } from './lookups.ts';
import type { GatewayAddress, Service, Workload } from './model.ts';
import { leadsToPort } from './served-ports.ts';
import type { MeshView } from './view.ts';
import { describeGateway, gatewayKey, referencedService } from './waypoint.ts';
import { workloadIdentity } from '../net/spiffe.ts';

/** Traffic that has arrived at a workload. */
export interface Arrived {
  readonly workload: Workload;
  /** Services that the traffic may belong to. */
  readonly services: readonly Service[];
  /** The application's port. */
  readonly port: number;
  /** Hostname of the service that the client addressed, as the request names it; null when it names none. */
  readonly forwardedHost: string | null;
  /** The peer's identity, null for plaintext. */
  readonly identity: string | null;
}

/** The way by which traffic came. */
export type Passage =
  /** Not through a waypoint, and none is required. */
  | { readonly kind: 'direct' }
  /** Through a waypoint of the workload or its services, whose statements about the client are trusted. */
  | { readonly kind: 'waypoint' }
  /** Not through the waypoint that is required. */
  | { readonly kind: 'bypassed'; readonly reason: string };

const DIRECT: Passage = { kind: 'direct' };

/**
 * Judges one arrival. The service that the client addressed requires its waypoint; without a service, the workload requires its
 * own. Outbound routing chooses in the same way (docs/spec/dataplane.md §2.1 steps 4 and 8).
 */
export function judgePassage(view: MeshView, arrived: Arrived): Passage | Need {
  const { workload, services, identity } = arrived;
  if (workload.waypoint === null && !services.some(hasWaypoint)) return DIRECT;
  const known = [
    ...(workload.waypoint === null ? [] : [workload.waypoint]),
    ...services.flatMap(waypointsOf),
  ];
  const lookups = new Lookups(view);
  const ways = known.map((reference) => way(lookups, reference, workload, identity));
  if (ways.includes(null)) return lookups.need();
  if (ways.some((each) => each?.passed === true)) return { kind: 'waypoint' };
  const demanded = demandedOf(arrived).filter((reference) => {
    const itself = ways[known.indexOf(reference)]?.itself;
    return itself !== true;
  });
  const [first] = demanded;
  if (first === undefined) return DIRECT;
  const who = identity ?? 'plaintext';
  const reason = `traffic must come through the waypoint ${describeGateway(first)}, this is ${who}`;
  return { kind: 'bypassed', reason };
}

function demandedOf({
  workload,
  services,
  port,
  forwardedHost,
}: Arrived): readonly GatewayAddress[] {
  const addressed = services.find(
    (service) => service.hostname === forwardedHost && mayBeAddressed(service, workload, port),
  );
  if (addressed !== undefined) return waypointsOf(addressed);
  return workload.waypoint === null ? [] : [workload.waypoint];
}

/** Returns true when a client that came by this port may have addressed the service. */
function mayBeAddressed(service: Service, workload: Workload, port: number): boolean {
  return workload.applicationTunnel !== null || leadsToPort(service, workload, port);
}

function hasWaypoint({ waypoint, weightedWaypoints }: Service): boolean {
  return waypoint !== null || weightedWaypoints.some(({ weight }) => weight > 0);
}

function waypointsOf(service: Service): readonly GatewayAddress[] {
  const weighted = service.weightedWaypoints
    .filter(({ weight }) => weight > 0)
    .map(({ destination }) => destination);
  return service.waypoint === null ? weighted : [...weighted, service.waypoint];
}

/** Checks whether a peer of the identity may be a waypoint, and whether that is the workload itself; null when the view cannot tell yet. */
function way(
  lookups: Lookups,
  reference: GatewayAddress,
  local: Workload,
  identity: string | null,
): { readonly passed: boolean; readonly itself: boolean } | null {
  const answer = lookups.get(gatewayKey(reference));
  if (answer === null) return null;
  const found = referencedService(reference, answer, null);
  if (found !== null) {
    const { service, endpoints } = found;
    const named = service.subjectAltNames.includes(identity ?? '') && endpoints.size > 0;
    return {
      passed: identity !== null && (named || endpoints.hasIdentity(identity)),
      itself: endpoints.has(local.uid),
    };
  }
  const single = workloadOf(answer);
  return {
    passed: single !== null && identity === workloadIdentity(single),
    itself: single?.uid === local.uid,
  };
}
