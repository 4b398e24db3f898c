/** Decides on outbound connections (docs/spec/dataplane.md §2.1 to §2.6). Pure: the same view, request and chance give the same decision. */
import { formatHostPort, formatIp, parseIp } from '../net/address.ts';
import { destinationIp } from './destination-ip.ts';
import type { DestinationIp } from './destination-ip.ts';
import { Lookups } from './lookups.ts';
import type { ServiceWithEndpoints } from './endpoint-set.ts';
import type { GatewayAddress, Service, Workload } from './model.ts';
import type { DenyDecision, OutboundDecision, Peer } from './outbound-decision.ts';
import { addressedService, chooseUpstream, chooseWaypoint } from './service-choice.ts';
import type { Target, Upstream } from './service-choice.ts';
import type { MeshView } from './view.ts';
import { describeGateway, expectedSans, leadsTo, resolveGateway } from './waypoint.ts';
import type { Gateway } from './waypoint.ts';

export { withResolvedIp } from './outbound-decision.ts';
export type { OutboundDecision } from './outbound-decision.ts';

/** An outbound connection to decide on. Addresses are canonical. */
export interface OutboundRequest {
  readonly source: Workload;
  /** The client's own address, for the waypoint loop check. */
  readonly sourceIp: string;
  readonly target: Target;
  /** Ports of the proxy's own listeners. */
  readonly illegalPorts: ReadonlySet<number>;
  /** NETWORK of this proxy. */
  readonly network: string;
  /** Numbers from 0 (included) to 1 (excluded). */
  readonly random: () => number;
  /** Port of HBONE listeners, 15008 by default. */
  readonly hbonePort?: number;
  /** Uids of workloads that could not be reached; they are picked again only when there are no others. */
  readonly except?: ReadonlySet<string>;
}

const HBONE_PORT = 15_008;
const NOBODY: ReadonlySet<string> = new Set();

/** Decides on a connection. `need` names the keys that are missing; fetch them, then call again. */
export function decideOutbound(view: MeshView, request: OutboundRequest): OutboundDecision {
  const { target, illegalPorts } = request;
  if (illegalPorts.has(target.port) && isLoopback(target.ip)) {
    return deny('ROUTE_ILLEGAL', `port ${target.port} of the loopback address is the proxy's own`);
  }
  return new Routing(view, request).decide();
}

class Routing {
  readonly #lookups: Lookups;
  readonly #request: OutboundRequest;

  constructor(view: MeshView, request: OutboundRequest) {
    this.#lookups = new Lookups(view);
    this.#request = request;
  }

  decide(): OutboundDecision {
    const { network, source, target } = this.#request;
    // Step 5 looks up the address on the source's network. To ask now saves a second fetch.
    if (source.network !== network) {
      this.#lookups.get({ kind: 'address', network: source.network, ip: target.ip });
    }
    const addressed = addressedService(this.#lookups, network, target, source.namespace);
    if (addressed === undefined) return this.#lookups.need();
    if (addressed !== null) {
      const { random } = this.#request;
      const waypoint = chooseWaypoint(this.#lookups, addressed.service, random);
      if (waypoint === undefined) return this.#lookups.need();
      if (waypoint !== null) return this.#serviceWaypoint(waypoint, addressed.service);
    }
    return this.#toUpstream(addressed);
  }

  /** Step 4. */
  #serviceWaypoint(reference: GatewayAddress, service: Service): OutboundDecision {
    const waypoint = this.#resolve(reference, 'waypoint');
    if (waypoint === null) return this.#lookups.need();
    if (waypoint === 'unknown') return unknownGateway('waypoint', reference);
    if (waypoint.workload.network !== this.#request.source.network) {
      const innerSans = waypoint.service?.subjectAltNames ?? [];
      return this.#crossNetwork(waypoint.workload, service, innerSans);
    }
    const why = `service ${service.namespace}/${service.hostname} has a waypoint`;
    return this.#throughWaypoint(waypoint, service, why);
  }

  /** Steps 5 to 9. */
  #toUpstream(addressed: ServiceWithEndpoints | null): OutboundDecision {
    const { source, target, random, except = NOBODY } = this.#request;
    const upstream = chooseUpstream(this.#lookups, target, { source, random, except });
    if (upstream === undefined) return this.#lookups.need();
    if (upstream === null) return this.#withoutUpstream(addressed?.service ?? null);
    const { workload, service } = upstream;
    if (workload.network !== source.network) {
      if (addressed === null) {
        const reason = `workload ${workload.uid} is on network ${JSON.stringify(workload.network)} and no service leads there`;
        return deny('ROUTE_NO_UPSTREAM', reason);
      }
      const innerSans = service?.subjectAltNames ?? [];
      return this.#crossNetwork(workload, addressed.service, innerSans);
    }
    if (addressed === null && workload.waypoint !== null) {
      const decision = this.#workloadWaypoint(workload, workload.waypoint);
      if (decision !== null) return decision;
    }
    return this.#direct(upstream);
  }

  /** Step 6. */
  #withoutUpstream(addressed: Service | null): OutboundDecision {
    const { target } = this.#request;
    if (addressed !== null && addressed.loadBalancing?.mode !== 'PASSTHROUGH') {
      const name = `${addressed.namespace}/${addressed.hostname}`;
      const why =
        addressed.ports[target.port] === undefined
          ? `does not define port ${target.port}`
          : 'has no healthy upstream';
      return deny('ROUTE_NO_UPSTREAM', `service ${name} ${why}`);
    }
    const reason =
      addressed === null
        ? 'the destination is not in the mesh'
        : `service ${addressed.namespace}/${addressed.hostname} passes through`;
    const peer = { ip: target.ip, port: target.port, resolve: null };
    return { kind: 'passthrough', peer, reason };
  }

  /** Step 8; null when the connection goes on to the workload itself. */
  #workloadWaypoint(workload: Workload, reference: GatewayAddress): OutboundDecision | null {
    const { source, sourceIp } = this.#request;
    const own = leadsTo(this.#lookups, reference, source, sourceIp);
    if (own === null) return this.#lookups.need();
    if (own) return null;
    const waypoint = this.#resolve(reference, 'waypoint');
    if (waypoint === null) return this.#lookups.need();
    if (waypoint === 'unknown') return unknownGateway('waypoint', reference);
    return this.#throughWaypoint(waypoint, null, `workload ${workload.uid} has a waypoint`);
  }

  #throughWaypoint(waypoint: Gateway, service: Service | null, why: string): OutboundDecision {
    const { target } = this.#request;
    const peer = peerOf(waypoint.destination, waypoint.port);
    if (peer === null) return noAddress(waypoint.workload);
    return {
      kind: 'hbone',
      via: 'waypoint',
      peer,
      authority: formatHostPort(target.ip, target.port),
      targetPort: target.port,
      expectedSans: waypoint.expectedSans,
      workload: waypoint.workload,
      service,
      sameNode: this.#isSameNode(waypoint.workload),
      alternatives: waypoint.alternatives,
      reason: why,
    };
  }

  /** §2.5. */
  #crossNetwork(
    workload: Workload,
    service: Service,
    innerSans: readonly string[],
  ): OutboundDecision {
    const reference = workload.networkGateway;
    if (reference === null) {
      const reason = `workload ${workload.uid} is on network ${JSON.stringify(workload.network)}, which has no gateway`;
      return deny('ROUTE_NO_UPSTREAM', reason);
    }
    const gateway = this.#resolve(reference, 'standard');
    if (gateway === null) return this.#lookups.need();
    if (gateway === 'unknown') return unknownGateway('gateway', reference);
    const peer = peerOf(gateway.destination, gateway.port);
    if (peer === null) return noAddress(gateway.workload);
    return {
      kind: 'double-hbone',
      peer,
      gateway: gateway.workload,
      authority: `${service.hostname}:${this.#request.target.port}`,
      expectedSans: gateway.expectedSans,
      innerSans,
      workload,
      service,
      sameNode: false,
      alternatives: gateway.alternatives,
      reason: `workload ${workload.uid} is on network ${JSON.stringify(workload.network)}`,
    };
  }

  /** Step 9. */
  #direct({ workload, service, port, alternatives }: Upstream): OutboundDecision {
    const { target, hbonePort = HBONE_PORT } = this.#request;
    const destination = destinationIp(workload, service, target.ip);
    const isHbone = workload.tunnelProtocol === 'HBONE';
    const peer = peerOf(destination, isHbone ? hbonePort : port);
    if (peer === null) return noAddress(workload);
    const reason =
      service === null
        ? `the destination is workload ${workload.uid}`
        : `workload ${workload.uid} was chosen for service ${service.namespace}/${service.hostname}`;
    const sameNode = this.#isSameNode(workload);
    if (!isHbone) return { kind: 'tcp', peer, workload, service, sameNode, alternatives, reason };
    return {
      kind: 'hbone',
      via: 'direct',
      peer,
      authority: peer.ip === null ? null : formatHostPort(peer.ip, port),
      targetPort: port,
      expectedSans: expectedSans(workload, service),
      workload,
      service,
      sameNode,
      alternatives,
      reason,
    };
  }

  #resolve(reference: GatewayAddress, mode: 'waypoint' | 'standard'): Gateway | 'unknown' | null {
    const { source, target, random, except = NOBODY } = this.#request;
    return resolveGateway(this.#lookups, reference, {
      source,
      targetIp: target.ip,
      mode,
      random,
      except,
    });
  }

  #isSameNode(workload: Workload): boolean {
    const { source } = this.#request;
    return (
      source.node !== '' && workload.node === source.node && workload.clusterId === source.clusterId
    );
  }
}

function peerOf(destination: DestinationIp, port: number): Peer | null {
  switch (destination.kind) {
    case 'ip':
      return { ip: destination.ip, port, resolve: null };
    case 'resolve': {
      const { hostname, preferredFamily } = destination;
      return { ip: null, port, resolve: { hostname, preferredFamily } };
    }
    case 'gateway-only':
    case 'none':
      return null;
  }
}

function noAddress(workload: Workload): DenyDecision {
  return deny('ROUTE_NO_UPSTREAM', `workload ${workload.uid} has no address to connect to`);
}

function unknownGateway(what: 'waypoint' | 'gateway', reference: GatewayAddress): DenyDecision {
  return deny('ROUTE_NO_UPSTREAM', `unknown ${what} ${describeGateway(reference)}`);
}

function deny(code: DenyDecision['code'], reason: string): DenyDecision {
  return { kind: 'deny', code, reason };
}

function isLoopback(ip: string): boolean {
  const { family, bytes } = parseIp(ip);
  return family === 4 ? bytes[0] === 127 : formatIp(bytes) === '::1';
}
