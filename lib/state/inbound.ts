/** Decides on inbound connections, as far as no socket is needed (docs/spec/dataplane.md §7.2 to §7.6 and §8). Pure. */
import { formatHostPort, ipFamily, tryParseHostPort } from '../net/address.ts';
import type { ErrorCode } from '../errors/codes.ts';
import { Lookups, serviceByAddress, serviceByHostname, workloadOf } from './lookups.ts';
import { leadsToPort } from './served-ports.ts';
import type { Need } from './lookups.ts';
import { serviceKey } from './model.ts';
import type { GatewayAddress, Service, Workload } from './model.ts';
import { rangeOf } from './range.ts';
import type { MeshView } from './view.ts';
import { gatewayKey, referencedService } from './waypoint.ts';

/** The authority of a CONNECT. */
export type Authority =
  | { readonly kind: 'ip'; readonly ip: string; readonly port: number }
  | { readonly kind: 'hostname'; readonly hostname: string; readonly port: number };

/** A refusal, with its reason for the access log. */
export interface InboundDenied {
  readonly kind: 'deny';
  readonly code: ErrorCode;
  readonly reason: string;
}

/** An inbound stream at the pod of `workload`. */
export interface InboundStream {
  readonly authority: Authority;
  /** The address that the peer dialled: the local address of the connection. */
  readonly localIp: string;
  readonly workload: Workload;
}

/** The destination of an inbound stream. */
export interface InboundUpstream {
  readonly kind: 'upstream';
  /** Destination for policies: the pod's address and the application's port. */
  readonly destination: { readonly ip: string; readonly port: number };
  /** Address to connect to; for loopback, the source is bound to the same address. */
  readonly connect: { readonly ip: string; readonly port: number; readonly loopback: boolean };
  /** `ip:port` to write as destination of a PROXY header before the first byte; null without one. */
  readonly proxyDestination: { readonly ip: string; readonly port: number } | null;
  /** Services that the stream may belong to, for {@link telemetryService}. */
  readonly candidates: readonly Service[];
}

/** Settings of {@link resolveUpstream}. */
export interface UpstreamSettings {
  /** Ports of the proxy's own listeners. */
  readonly illegalPorts: ReadonlySet<number>;
  /** LOCALHOST_APP_TUNNEL: reach applications behind a PROXY tunnel over loopback. */
  readonly localhostAppTunnel: boolean;
}

/** Step 2: parses `ip:port`, `[v6]:port` or `host:port`; null when a part is missing. */
export function parseAuthority(text: string): Authority | null {
  const parsed = tryParseHostPort(text);
  if (parsed === null) return null;
  const { host, port } = parsed;
  return ipFamily(host) === null
    ? { kind: 'hostname', hostname: host, port }
    : { kind: 'ip', ip: host, port };
}

/** §7.3: returns why the stream may not end here; null when it may. */
export function validateDestination(
  view: MeshView,
  stream: InboundStream,
): InboundDenied | Need | null {
  const { authority, localIp, workload } = stream;
  if (authority.kind === 'hostname' || authority.ip === localIp) return null;
  if (workload.applicationTunnel !== null) return null;
  const lookups = new Lookups(view);
  const reference = waypointOf(lookups, workload.network, authority.ip);
  if (reference === undefined) return lookups.need();
  const serves = reference === null ? false : servesAs(lookups, reference, stream);
  if (serves === null) return lookups.need();
  if (serves) return null;
  const asked = formatHostPort(authority.ip, authority.port);
  const reason = `${asked} is neither this pod (${localIp}) nor behind it as a waypoint`;
  return { kind: 'deny', code: 'ROUTE_MISMATCH', reason };
}

/** §7.4 and §7.5: returns the destination of the stream. `services` are those of the local workload. */
export function resolveUpstream(
  view: MeshView,
  stream: InboundStream,
  services: readonly Service[],
  settings: UpstreamSettings,
): InboundUpstream | InboundDenied | Need {
  const { authority, localIp, workload } = stream;
  let service: Service | null = null;
  let { port } = authority;
  if (authority.kind === 'hostname') {
    const lookups = new Lookups(view);
    const answer = lookups.get({ kind: 'hostname', hostname: authority.hostname });
    if (answer === null) return lookups.need();
    service = serviceByHostname(answer.services, workload.namespace)?.service ?? null;
    if (service === null) return noUpstream(`no service has the hostname ${authority.hostname}`);
    const translated = translatePort(workload, service, port);
    if (translated === null) {
      return noUpstream(`service ${serviceKey(service)} does not define port ${port}`);
    }
    port = translated;
  }
  const tunnel = workload.applicationTunnel;
  const applicationPort = tunnel !== null && tunnel.port > 0 ? tunnel.port : port;
  for (const candidate of [port, applicationPort]) {
    if (settings.illegalPorts.has(candidate)) {
      return illegalPort(candidate, 'ROUTE_NO_UPSTREAM');
    }
  }
  const isProxied = tunnel?.protocol === 'PROXY';
  const proxyDestination = isProxied ? proxyTarget(authority, service, workload.network) : null;
  if (isProxied && proxyDestination === null) {
    return noUpstream(`service ${service === null ? '' : serviceKey(service)} has no address`);
  }
  const loopback = isProxied && settings.localhostAppTunnel;
  const loopbackIp = ipFamily(localIp) === 6 ? '::1' : '127.0.0.1';
  return {
    kind: 'upstream',
    destination: { ip: localIp, port: applicationPort },
    connect: { ip: loopback ? loopbackIp : localIp, port: applicationPort, loopback },
    proxyDestination,
    candidates: service === null ? services : [service],
  };
}

/** §8 step 1: refuses a captured plaintext connection to one of the proxy's own ports; null for other ports. */
export function checkPlaintextDestination(
  destination: { readonly ip: string; readonly port: number },
  illegalPorts: ReadonlySet<number>,
): InboundDenied | null {
  return illegalPorts.has(destination.port) ? illegalPort(destination.port, 'ROUTE_ILLEGAL') : null;
}

/**
 * §7.6: returns the service that metrics name for an inbound stream. `forwardedHost` is `host=` of the `Forwarded` header,
 * `port` the application's port.
 */
export function telemetryService(
  candidates: readonly Service[],
  workload: Workload,
  forwardedHost: string | null,
  port: number,
): Service | null {
  const named = candidates.find((service) => service.hostname === forwardedHost);
  if (named !== undefined) return named;
  return candidates.find((service) => leadsToPort(service, workload, port)) ?? null;
}

/** Returns the single waypoint of the owner of the address; null without one, undefined when the view cannot tell yet. */
function waypointOf(
  lookups: Lookups,
  network: string,
  ip: string,
): GatewayAddress | null | undefined {
  const answer = lookups.get({ kind: 'address', network, ip });
  if (answer === null) return undefined;
  const workload = workloadOf(answer);
  if (workload !== null) return workload.waypoint;
  return serviceByAddress(answer.services, network, ip, null)?.service.waypoint ?? null;
}

/** Returns true when the reference names the local workload; null when the view cannot tell yet. */
function servesAs(
  lookups: Lookups,
  reference: GatewayAddress,
  { localIp, workload }: InboundStream,
): boolean | null {
  const answer = lookups.get(gatewayKey(reference));
  if (answer === null) return null;
  const service = referencedService(reference, answer, null);
  if (service !== null) {
    return service.endpoints.has(workload.uid);
  }
  return workloadOf(answer)?.addresses.includes(localIp) ?? false;
}

/** Returns the local workload's port for a service port, else the service's; null when neither has one. */
function translatePort(workload: Workload, service: Service, port: number): number | null {
  const own = workload.services[serviceKey(service)]?.[port] ?? 0;
  if (own > 0) return own;
  const target = service.ports[port] ?? 0;
  return target > 0 ? target : null;
}

/** §7.4: returns the destination in the PROXY header; null when a hostname has no single address. */
function proxyTarget(
  authority: Authority,
  service: Service | null,
  network: string,
): { ip: string; port: number } | null {
  if (authority.kind === 'ip') return { ip: authority.ip, port: authority.port };
  const singles = (service?.addresses ?? []).filter((address) => rangeOf(address) === null);
  const near = singles.filter((address) => address.network === network);
  const chosen =
    near.find((address) => ipFamily(address.ip) === 4) ??
    near.find((address) => ipFamily(address.ip) === 6) ??
    singles[0];
  return chosen === undefined ? null : { ip: chosen.ip, port: authority.port };
}

function noUpstream(reason: string): InboundDenied {
  return { kind: 'deny', code: 'ROUTE_NO_UPSTREAM', reason };
}

function illegalPort(port: number, code: ErrorCode): InboundDenied {
  const reason = `port ${port} is the proxy's own`;
  return { kind: 'deny', code, reason };
}
