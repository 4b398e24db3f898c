/**
 * A second, simple implementation of the outbound decisions of docs/spec/dataplane.md §2 to §6. It walks plain lists and
 * returns every outcome that a random choice allows.
 */
import { BlockList, isIPv4 } from 'node:net';
import type { GatewayAddress, Service, Workload } from '../../lib/state/model.ts';
import type { OutboundDecision, OutboundRequest } from '../../lib/state/routing.ts';

/** The whole state of the mesh. */
export interface NaiveMesh {
  readonly workloads: readonly Workload[];
  readonly services: readonly Service[];
}

interface Picked {
  readonly workload: Workload;
  readonly service: Service | null;
  readonly port: number;
}

/** Formats an outcome as text, without reasons and details that the specification does not fix. */
export function outcomeOf(decision: OutboundDecision): string {
  switch (decision.kind) {
    case 'need':
      return 'need';
    case 'deny':
      return 'deny';
    case 'passthrough':
      return `passthrough ${decision.peer.ip} ${decision.peer.port}`;
    default: {
      const { peer, workload, service } = decision;
      const to =
        peer.resolve === null
          ? peer.ip
          : `${peer.resolve.hostname}/${peer.resolve.preferredFamily}`;
      const parts = [decision.kind, to, peer.port, service?.hostname ?? '-'];
      if (decision.kind === 'hbone') parts.push(decision.authority ?? decision.targetPort);
      if (decision.kind === 'double-hbone') parts.push(decision.authority);
      if (decision.kind !== 'tcp') parts.push([...decision.expectedSans].sort().join(','));
      if (decision.kind !== 'double-hbone') return [...parts, workload.uid].join(' ');
      return [...parts, decision.gateway.uid, [...decision.innerSans].sort().join(',')].join(' ');
    }
  }
}

/** Returns every outcome that a request may have. */
export function naiveOutcomes(mesh: NaiveMesh, request: OutboundRequest): ReadonlySet<string> {
  const { source, target } = request;
  const isLoopback = target.ip.startsWith('127.') || target.ip === '::1';
  if (isLoopback && request.illegalPorts.has(target.port)) return new Set(['deny']);
  // Step 3.
  const owner = workloadAt(mesh, request.network, target.ip);
  const s = owner === null ? serviceAt(mesh, request.network, target.ip, source.namespace) : null;
  // Step 4.
  if (s !== null) {
    const references = waypointsOf(s);
    if (references.length > 0) {
      return union(references.map((reference) => viaServiceWaypoint(mesh, request, reference, s)));
    }
  }
  // Step 5.
  const outcomes = upstreams(mesh, request).map((picked) => {
    if (picked === null) return fromNothing(s, request);
    return fromUpstream(mesh, request, picked, s);
  });
  return union(outcomes);
}

function union(sets: readonly Iterable<string>[]): ReadonlySet<string> {
  return new Set(sets.flatMap((set) => [...set]));
}

/** Step 6. */
function fromNothing(s: Service | null, { target }: OutboundRequest): string[] {
  if (s !== null && s.loadBalancing?.mode !== 'PASSTHROUGH') return ['deny'];
  return [`passthrough ${target.ip} ${target.port}`];
}

/** Steps 7 to 9. */
function fromUpstream(
  mesh: NaiveMesh,
  request: OutboundRequest,
  picked: Picked,
  s: Service | null,
): Iterable<string> {
  const { source, sourceIp, target } = request;
  const { workload, service, port } = picked;
  if (workload.network !== source.network) {
    if (s === null) return ['deny'];
    return acrossNetworks(mesh, request, workload, s, service?.subjectAltNames ?? []);
  }
  if (s === null && workload.waypoint !== null) {
    const mine = candidatesBehind(mesh, workload.waypoint, source.namespace).some(
      (each) => identity(each) === identity(source) && each.addresses.includes(sourceIp),
    );
    if (!mine) return viaWorkloadWaypoint(mesh, request, workload.waypoint);
  }
  const to = addressOf(workload, service, target.ip);
  if (to === null) return ['deny'];
  const name = service?.hostname ?? '-';
  if (workload.tunnelProtocol === 'NONE') return [`tcp ${to} ${port} ${name} ${workload.uid}`];
  const authority = to.includes('/') ? String(port) : hostPort(to, port);
  return [`hbone ${to} 15008 ${name} ${authority} ${sans(workload, service)} ${workload.uid}`];
}

function viaServiceWaypoint(
  mesh: NaiveMesh,
  request: OutboundRequest,
  reference: GatewayAddress,
  s: Service,
): Iterable<string> {
  return union(
    resolve(mesh, request, reference, 'waypoint').map((picked) => {
      if (picked === null) return ['deny'];
      if (picked.workload.network !== request.source.network) {
        const inner = picked.service?.subjectAltNames ?? [];
        return acrossNetworks(mesh, request, picked.workload, s, inner);
      }
      return [throughWaypoint(request, reference, picked, s)];
    }),
  );
}

function viaWorkloadWaypoint(
  mesh: NaiveMesh,
  request: OutboundRequest,
  reference: GatewayAddress,
): Iterable<string> {
  return resolve(mesh, request, reference, 'waypoint').map((picked) =>
    picked === null ? 'deny' : throughWaypoint(request, reference, picked, null),
  );
}

function throughWaypoint(
  { target }: OutboundRequest,
  reference: GatewayAddress,
  { workload, service, port }: Picked,
  s: Service | null,
): string {
  const to = addressOf(workload, service, familyOf(reference, target.ip));
  if (to === null) return 'deny';
  const authority = hostPort(target.ip, target.port);
  return `hbone ${to} ${port} ${s?.hostname ?? '-'} ${authority} ${sans(workload, service)} ${workload.uid}`;
}

/** §2.5. */
function acrossNetworks(
  mesh: NaiveMesh,
  request: OutboundRequest,
  far: Workload,
  s: Service,
  inner: readonly string[],
): Iterable<string> {
  const reference = far.networkGateway;
  if (reference === null) return ['deny'];
  return resolve(mesh, request, reference, 'standard').map((picked) => {
    if (picked === null) return 'deny';
    const { workload, service, port } = picked;
    const to = addressOf(workload, service, familyOf(reference, request.target.ip));
    if (to === null) return 'deny';
    const authority = `${s.hostname}:${request.target.port}`;
    return `double-hbone ${to} ${port} ${s.hostname} ${authority} ${sans(workload, service)} ${workload.uid} ${[...inner].sort().join(',')}`;
  });
}

/** §2.3; a null among the results means that there may be no upstream. */
function resolve(
  mesh: NaiveMesh,
  { source }: OutboundRequest,
  reference: GatewayAddress,
  mode: 'waypoint' | 'standard',
): (Picked | null)[] {
  const service = serviceOfReference(mesh, reference, source.namespace);
  const port = reference.hboneMtlsPort;
  if (service !== null) return picks(mesh, service, source, port, mode);
  const workload = workloadOfReference(mesh, reference);
  return workload === null ? [null] : [{ workload, service: null, port }];
}

function serviceOfReference(
  mesh: NaiveMesh,
  { destination }: GatewayAddress,
  namespace: string,
): Service | null {
  if (destination.kind === 'address') {
    return serviceAt(mesh, destination.network, destination.ip, namespace);
  }
  const { hostname } = destination;
  const found = mesh.services.find(
    (each) => each.namespace === destination.namespace && each.hostname === hostname,
  );
  return found ?? null;
}

function workloadOfReference(mesh: NaiveMesh, { destination }: GatewayAddress): Workload | null {
  if (destination.kind === 'address') return workloadAt(mesh, destination.network, destination.ip);
  const { hostname, namespace } = destination;
  const found = mesh.workloads.filter(
    (each) => each.hostname === hostname && each.namespace === namespace,
  );
  return found.sort(byUid)[0] ?? null;
}

function candidatesBehind(
  mesh: NaiveMesh,
  reference: GatewayAddress,
  namespace: string,
): Workload[] {
  const service = serviceOfReference(mesh, reference, namespace);
  if (service !== null) return endpoints(mesh, service).map(({ workload }) => workload);
  const workload = workloadOfReference(mesh, reference);
  return workload === null ? [] : [workload];
}

function familyOf({ destination }: GatewayAddress, targetIp: string): string {
  return destination.kind === 'address' ? destination.ip : targetIp;
}

function upstreams(mesh: NaiveMesh, { source, target }: OutboundRequest): (Picked | null)[] {
  const service = serviceAt(mesh, source.network, target.ip, source.namespace);
  if (service !== null) {
    if (service.loadBalancing?.mode === 'PASSTHROUGH') return [null];
    return picks(mesh, service, source, target.port, 'standard');
  }
  const workload = workloadAt(mesh, source.network, target.ip);
  return [workload === null ? null : { workload, service: null, port: target.port }];
}

/** §3. */
function workloadAt({ workloads }: NaiveMesh, network: string, ip: string): Workload | null {
  const rank = (each: Workload): number =>
    2 * Number(each.uid.includes('//Pod/')) + Number(each.tunnelProtocol === 'HBONE');
  const found = workloads.filter(
    (each) =>
      each.networkMode === 'STANDARD' && each.network === network && each.addresses.includes(ip),
  );
  return found.sort((left, right) => rank(right) - rank(left) || byUid(left, right))[0] ?? null;
}

function serviceAt(
  { services }: NaiveMesh,
  network: string,
  ip: string,
  namespace: string,
): Service | null {
  const visible = services
    .filter((each) => each.visibility === 'PUBLIC' || each.namespace === namespace)
    .sort((left, right) => (key(left) < key(right) ? -1 : 1));
  const width = isIPv4(ip) ? 32 : 128;
  const exact = visible.filter((each) =>
    each.addresses.some(
      (at) => at.network === network && at.ip === ip && (at.length === null || at.length === width),
    ),
  );
  if (exact.length > 0) {
    const own = exact.find((each) => each.namespace === namespace);
    return own ?? exact.findLast((each) => each.canonical) ?? exact[0] ?? null;
  }
  const ranges = visible.flatMap((each) =>
    each.addresses
      .filter(
        (at) => at.network === network && at.length !== null && contains(at.ip, at.length, ip),
      )
      .map((at) => ({ each, length: at.length ?? 0 })),
  );
  const score = ({ each, length }: { each: Service; length: number }): number =>
    1_000 * Number(each.namespace === namespace) + 2 * length + Number(each.canonical);
  const best = Math.max(...ranges.map(score));
  return ranges.find((range) => score(range) === best)?.each ?? null;
}

function contains(network: string, length: number, ip: string): boolean {
  const family = isIPv4(network) ? 'ipv4' : 'ipv6';
  if (isIPv4(network) !== isIPv4(ip)) return false;
  if (length >= (family === 'ipv4' ? 32 : 128)) return false;
  const list = new BlockList();
  list.addSubnet(network, length, family);
  return list.check(ip, family);
}

function endpoints(
  mesh: NaiveMesh,
  service: Service,
): { workload: Workload; ports: Readonly<Record<number, number>> }[] {
  return mesh.workloads.flatMap((workload) => {
    const ports = workload.services[key(service)];
    const sick =
      workload.status === 'UNHEALTHY' && service.loadBalancing?.healthPolicy !== 'ALLOW_ALL';
    return ports === undefined || sick ? [] : [{ workload, ports }];
  });
}

/** §4 and §5. */
function picks(
  mesh: NaiveMesh,
  service: Service,
  source: Workload,
  port: number,
  mode: 'standard' | 'waypoint',
): (Picked | null)[] {
  const tp = service.ports[port];
  if (mode === 'standard' && tp === undefined) return [null];
  const able = endpoints(mesh, service).filter(({ workload, ports }) => {
    const bare = workload.addresses.length === 0 && workload.hostname === '';
    const behindGateway = workload.network !== source.network && workload.networkGateway !== null;
    if (bare && !behindGateway) return false;
    if (mode === 'standard' && tp === 0) return ports[port] !== undefined;
    if (mode === 'waypoint' && tp === undefined) return workload.applicationTunnel !== null;
    return true;
  });
  const near = nearest(able, service, source).filter(({ workload }) => workload.capacity > 0);
  if (near.length === 0) return [null];
  return near.map(({ workload, ports }) => {
    const tunnelled = (workload.applicationTunnel?.port ?? 0) > 0 ? port : undefined;
    const chosen = ports[port] ?? (tp !== undefined && tp > 0 ? tp : tunnelled);
    return chosen === undefined ? null : { workload, service, port: chosen };
  });
}

function nearest<Item extends { readonly workload: Workload }>(
  items: readonly Item[],
  { loadBalancing }: Service,
  source: Workload,
): readonly Item[] {
  const mode = loadBalancing?.mode;
  if (loadBalancing === null || (mode !== 'STRICT' && mode !== 'FAILOVER')) return items;
  const { routingPreference: wanted } = loadBalancing;
  const value = (workload: Workload, scope: string): string =>
    ({
      REGION: workload.locality.region,
      ZONE: workload.locality.zone,
      SUBZONE: workload.locality.subzone,
      NODE: workload.node,
      CLUSTER: workload.clusterId,
      NETWORK: workload.network,
    })[scope] ?? '';
  const ranked = items.map((item) => {
    const same = wanted.map((scope) => value(source, scope) === value(item.workload, scope));
    const [networkMatches] = same;
    if (wanted[0] === 'NETWORK') {
      const rest = same.slice(1);
      const run = rest.includes(false) ? rest.indexOf(false) : rest.length;
      const rank = run + (networkMatches === true ? 1 : 0);
      return { item, rank, final: rank + (networkMatches === true ? wanted.length - 1 : 0) };
    }
    const rank = same.includes(false) ? same.indexOf(false) : same.length;
    return { item, rank, final: rank };
  });
  const left = ranked.filter(({ rank }) => mode !== 'STRICT' || rank === wanted.length);
  const best = Math.max(...left.map(({ final }) => final));
  return left.filter(({ final }) => final === best).map(({ item }) => item);
}

/** §6: an address, `name/family` to resolve, null for none. */
function addressOf(workload: Workload, service: Service | null, targetIp: string): string | null {
  if (workload.addresses.includes(targetIp)) return targetIp;
  const allowed = workload.addresses.filter((ip) => {
    if (service?.ipFamilies === 'IPV4_ONLY') return isIPv4(ip);
    return service?.ipFamilies !== 'IPV6_ONLY' || !isIPv4(ip);
  });
  const ip = allowed.find((each) => isIPv4(each) === isIPv4(targetIp)) ?? allowed[0];
  if (ip !== undefined) return ip;
  return workload.hostname === '' ? null : `${workload.hostname}/${isIPv4(targetIp) ? 4 : 6}`;
}

function waypointsOf(service: Service): GatewayAddress[] {
  const weighted = service.weightedWaypoints.filter(({ weight }) => weight > 0);
  if (weighted.length > 0) return weighted.map(({ destination }) => destination);
  return service.waypoint === null ? [] : [service.waypoint];
}

function sans(workload: Workload, service: Service | null): string {
  const all = new Set([...(service?.subjectAltNames ?? []), identity(workload)]);
  return [...all].sort().join(',');
}

function identity({ trustDomain, namespace, serviceAccount }: Workload): string {
  return `spiffe://${trustDomain}/ns/${namespace}/sa/${serviceAccount}`;
}

function hostPort(ip: string, port: number): string {
  return isIPv4(ip) ? `${ip}:${port}` : `[${ip}]:${port}`;
}

function key({ namespace, hostname }: Service): string {
  return `${namespace}/${hostname}`;
}

function byUid(left: Workload, right: Workload): number {
  return left.uid < right.uid ? -1 : 1;
}
