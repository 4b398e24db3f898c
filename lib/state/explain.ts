/** Answers `weft policy explain`: the route that a connection would take, and the verdict at its end. Pure. */
import { formatHostPort, ipFamily } from '../net/address.ts';
import { compileProgram } from '../policy/compile.ts';
import { describeVerdict, judge } from '../policy/evaluate.ts';
import type { ExplainRequest, ExplainResult } from '../policy/explain.ts';
import type { Verdict } from '../policy/model.ts';
import type { BoundSet, PolicySubject } from '../policy/policy-store.ts';
import { destinationIp } from './destination-ip.ts';
import { parseAuthority, resolveUpstream } from './inbound.ts';
import { Lookups } from './lookups.ts';
import { serviceKey } from './model.ts';
import type { ServiceWithEndpoints } from './endpoint-set.ts';
import type { Workload } from './model.ts';
import type { DoubleHboneDecision, HboneDecision } from './outbound-decision.ts';
import { decideOutbound } from './routing.ts';
import type { OutboundDecision } from './routing.ts';
import { chooseUpstream } from './service-choice.ts';
import type { Target, Upstream } from './service-choice.ts';
import type { MeshView } from './view.ts';
import { judgePassage } from './waypoint-guard.ts';
import { workloadIdentity } from '../net/spiffe.ts';

/** The complete mesh state, which is searched by names, too. */
export interface ExplainView extends MeshView {
  workloadsNamed(namespace: string, name: string): readonly Workload[];
  servicesNamed(namespace: string, name: string): readonly ServiceWithEndpoints[];
}

/** Returns the policies that bind a workload; a PolicyStore does. */
export interface ExplainPolicies {
  setFor(subject: PolicySubject): BoundSet;
}

/** Settings of the data path that change the answer. */
export interface ExplainSettings {
  /** NETWORK of the proxies. */
  readonly network: string;
  readonly unknownReference: 'deny' | 'ignore';
  /** WEFT_WAYPOINT_BYPASS of the proxies. */
  readonly waypointBypass: 'deny' | 'allow';
  /** WEFT_SAME_NODE_FAST_PATH of the proxies. */
  readonly sameNodeFastPath: boolean;
}

/** Ports of the proxies' own listeners (docs/spec/dataplane.md §1). */
const PROXY_PORTS: ReadonlySet<number> = new Set([15_001, 15_006, 15_008]);

/** In place of chance: the first of several counts. */
const first = (): number => 0;

const NOTHING: ExplainResult = {
  allowed: false,
  policy: null,
  rule: null,
  path: 'none',
  reason: 'unknown-destination',
  from: null,
  to: null,
  nextHop: null,
  workload: null,
  service: null,
  expectedSans: [],
  dryRun: [],
  detail: '',
};

/**
 * Explains one connection. Of several endpoints of a service the first counts. Traffic through a waypoint is judged where it
 * enters the waypoint.
 */
export function explain(
  view: ExplainView,
  policies: ExplainPolicies,
  request: ExplainRequest,
  settings: ExplainSettings,
): ExplainResult {
  const { from, to } = request;
  const [source] = view.workloadsNamed(from.namespace, from.pod);
  if (source === undefined) {
    const detail = `no workload ${from.namespace}/${from.pod} is known`;
    return { ...NOTHING, reason: 'unknown-source', detail };
  }
  const target = findTarget(view, request, source);
  if (target === null) {
    const detail = `no pod or service ${to.namespace}/${to.name} with an address is known`;
    return { ...NOTHING, detail };
  }
  const sourceIp = addressFor(source.addresses, target.ip) ?? source.addresses[0] ?? '';
  const explanation = new Explanation(view, source, sourceIp, target, policies, settings);
  if (source.tunnelProtocol === 'NONE') {
    const chooser = { source, random: first, except: new Set<string>() };
    const upstream = chooseUpstream(new Lookups(view), target, chooser);
    if (upstream !== undefined && upstream !== null) return explanation.ofOutsider(upstream);
  }
  const { network } = settings;
  const asked = { source, sourceIp, target, illegalPorts: PROXY_PORTS, network, random: first };
  return explanation.of(decideOutbound(view, asked));
}

/** A plain connection to a known workload. */
interface PlainRoute extends Upstream {
  readonly ip: string | null;
  readonly reason: string;
}

class Explanation {
  readonly #view: MeshView;
  readonly #source: Workload;
  readonly #sourceIp: string;
  readonly #target: Target;
  readonly #policies: ExplainPolicies;
  readonly #settings: ExplainSettings;

  constructor(
    view: MeshView,
    source: Workload,
    sourceIp: string,
    target: Target,
    policies: ExplainPolicies,
    settings: ExplainSettings,
  ) {
    this.#view = view;
    this.#source = source;
    this.#sourceIp = sourceIp;
    this.#target = target;
    this.#policies = policies;
    this.#settings = settings;
  }

  /** Explains traffic of a pod outside the mesh, which sends plain TCP to every destination and passes no waypoint. */
  ofOutsider(upstream: Upstream): ExplainResult {
    const { workload, service } = upstream;
    const destination = destinationIp(workload, service, this.#target.ip);
    const ip = destination.kind === 'ip' ? destination.ip : null;
    return this.#plain({ ...upstream, ip, reason: `the connection ends at ${workload.uid}` });
  }

  of(decision: OutboundDecision): ExplainResult {
    switch (decision.kind) {
      case 'need':
        return { ...NOTHING, reason: 'not-ready', detail: 'the mesh state is not complete' };
      case 'deny':
        return { ...NOTHING, reason: 'no-upstream', detail: decision.reason };
      case 'passthrough': {
        const address = formatHostPort(this.#target.ip, this.#target.port);
        return {
          ...NOTHING,
          ...open(decision.reason),
          path: 'passthrough',
          to: address,
          nextHop: address,
        };
      }
      case 'tcp':
        return this.#plain({ ...decision, ip: decision.peer.ip, port: decision.peer.port });
      case 'double-hbone':
        return this.#double(decision);
      case 'hbone':
        return this.#hbone(decision);
    }
  }

  #hbone(decision: HboneDecision): ExplainResult {
    const identity = workloadIdentity(this.#source);
    const { sameNodeFastPath } = this.#settings;
    const sameNode = sameNodeFastPath && decision.via === 'direct' && decision.sameNode;
    const base: ExplainResult = {
      ...NOTHING,
      ...described(decision),
      path: decision.via === 'waypoint' ? 'waypoint' : sameNode ? 'same-node' : 'hbone',
      from: identity,
      expectedSans: [...decision.expectedSans],
    };
    const arrival = arrivalOf(decision);
    if (arrival === null) {
      return { ...base, ...open(`${decision.reason}; its address is resolved later`) };
    }
    const verdict = this.#verdict(decision.workload, arrival, identity);
    const behind = decision.via === 'waypoint' ? '; what is behind it decides for itself' : '';
    const to = formatHostPort(arrival.ip, arrival.port);
    return { ...base, to, ...judged(verdict, `${decision.reason}${behind}`) };
  }

  #double(decision: DoubleHboneDecision): ExplainResult {
    const { reason, innerSans, gateway } = decision;
    const base: ExplainResult = {
      ...NOTHING,
      ...described(decision),
      path: 'double-hbone',
      from: workloadIdentity(this.#source),
      workload: gateway.uid,
      expectedSans: [...decision.expectedSans],
    };
    if (innerSans.length === 0) {
      const detail = `the service names no identities that could answer for it there (${reason})`;
      return { ...base, allowed: false, reason: 'no-identities', detail };
    }
    const behind = `behind the gateway ${innerSans.join(' or ')} must answer, and policies are enforced there`;
    return { ...base, ...open(`${reason}; ${behind}`) };
  }

  /** Explains plain TCP, which is judged when the destination is in the mesh. */
  #plain(plain: PlainRoute): ExplainResult {
    const { workload, ip, port, reason } = plain;
    const to = ip === null ? null : formatHostPort(ip, port);
    const base: ExplainResult = {
      ...NOTHING,
      path: 'passthrough',
      to,
      nextHop: to,
      workload: workload.uid,
      service: plain.service === null ? null : serviceKey(plain.service),
    };
    if (workload.tunnelProtocol === 'NONE' || ip === null) {
      return { ...base, ...open(`${reason}, which is not in the mesh`) };
    }
    const bypassed = this.#bypassed(workload, port);
    if (bypassed !== null) {
      const detail = `${bypassed} (${reason})`;
      return { ...base, allowed: false, reason: 'waypoint-bypassed', detail };
    }
    const verdict = this.#verdict(workload, { ip, port }, null);
    return { ...base, ...judged(verdict, `${reason}; the source is not in the mesh`) };
  }

  /** Returns why the destination refuses plaintext that passed no waypoint; null when it accepts it. */
  #bypassed(workload: Workload, port: number): string | null {
    if (this.#settings.waypointBypass === 'allow') return null;
    const arrived = { workload, services: [], port, forwardedHost: null, identity: null };
    const passage = judgePassage(this.#view, arrived);
    return passage.kind === 'bypassed' ? passage.reason : null;
  }

  #verdict(
    destination: Workload,
    arrival: { ip: string; port: number },
    identity: string | null,
  ): Verdict {
    const bound = this.#policies.setFor(destination);
    const program = compileProgram(bound.setId, bound.policies);
    const { denyAll, missing, setId } = bound;
    return judge(
      { setId, unknown: missing, pending: false, denyAll },
      program,
      {
        sourceIp: this.#sourceIp === '' ? arrival.ip : this.#sourceIp,
        sourceIdentity: identity,
        destinationIp: arrival.ip,
        destinationPort: arrival.port,
      },
      this.#settings.unknownReference,
    );
  }
}

function described(
  decision: Extract<OutboundDecision, { kind: 'tcp' | 'hbone' | 'double-hbone' }>,
): Pick<ExplainResult, 'nextHop' | 'workload' | 'service'> {
  const { peer, workload, service } = decision;
  const host = peer.ip ?? peer.resolve?.hostname ?? '';
  return {
    nextHop: formatHostPort(host, peer.port),
    workload: workload.uid,
    service: service === null ? null : serviceKey(service),
  };
}

function judged(
  verdict: Verdict,
  route: string,
): Pick<ExplainResult, 'allowed' | 'policy' | 'rule' | 'reason' | 'dryRun' | 'detail'> {
  const { allowed, policy, rule, reason, dryRun } = verdict;
  const detail = `${describeVerdict(verdict)} (${route})`;
  return { allowed, policy, rule, reason, dryRun: [...dryRun], detail };
}

function open(route: string): Pick<ExplainResult, 'allowed' | 'reason' | 'detail'> {
  return { allowed: true, reason: 'not-enforced', detail: `no policy is enforced (${route})` };
}

/** Returns the end of a tunnel's stream at its pod; null while the address is not known. */
function arrivalOf(decision: HboneDecision): { ip: string; port: number } | null {
  const { peer, workload } = decision;
  if (peer.ip === null) return null;
  const authority = decision.authority === null ? null : parseAuthority(decision.authority);
  if (authority === null) return null;
  const upstream = resolveUpstream(
    { get: () => undefined },
    { authority, localIp: peer.ip, workload },
    [],
    { illegalPorts: new Set(), localhostAppTunnel: true },
  );
  return upstream.kind === 'upstream' ? upstream.destination : null;
}

/** Finds the destination by name. A service that defines the port goes before a pod of the same name. */
function findTarget(view: ExplainView, { to }: ExplainRequest, source: Workload): Target | null {
  const services = view.servicesNamed(to.namespace, to.name);
  const defining = services.find(({ service }) => service.ports[to.port] !== undefined);
  const [pod] = view.workloadsNamed(to.namespace, to.name);
  const named = defining ?? (pod === undefined ? services[0] : undefined);
  if (named !== undefined) return serviceTarget(named, to.port, source);
  const ip = pod === undefined ? undefined : addressLike(pod.addresses, source);
  return ip === undefined ? null : { ip, port: to.port };
}

/** Returns the virtual address that a client would use; for a headless service, the address of an endpoint. */
function serviceTarget(
  { service, endpoints }: ServiceWithEndpoints,
  port: number,
  source: Workload,
): Target | null {
  const vips = service.addresses.filter((address) => address.network === source.network);
  const vip = addressLike(
    vips.map((address) => address.ip),
    source,
  );
  if (vip !== undefined) return { ip: vip, port };
  for (const { workload, ports } of endpoints) {
    const ip = addressLike(workload.addresses, source);
    if (ip !== undefined) return { ip, port: ports[port] ?? (service.ports[port] || port) };
  }
  return null;
}

function addressLike(candidates: readonly string[], source: Workload): string | undefined {
  const [own] = source.addresses;
  return (own === undefined ? undefined : addressFor(candidates, own)) ?? candidates[0];
}

function addressFor(candidates: readonly string[], like: string): string | undefined {
  return candidates.find((ip) => ipFamily(ip) === ipFamily(like));
}
