/** The collections of policies: of AuthorizationPolicies, PeerAuthentications and waypoints. */
import { isDeepStrictEqual } from 'node:util';
import type { Index, Keyed } from '../../../lib/derived/keyed.ts';
import { Mapped } from '../../../lib/derived/mapped.ts';
import { Memo } from '../../../lib/derived/memo.ts';
import type { Reading } from '../../../lib/derived/reading.ts';
import { Source } from '../../../lib/derived/source.ts';
import { present } from '../../../lib/errors/assert.ts';
import type { AuthorizationPolicy, Gateway, PeerAuthentication, Pod } from '../manifests/kinds.ts';
import { namespaceOf } from '../manifests/kinds.ts';
import { convertPolicy } from '../policy/authorization-policy.ts';
import type { ConvertedPolicy } from '../policy/authorization-policy.ts';
import {
  convertedPeerAuthentication,
  peerAuthenticationKey,
  peerAuthenticationLevels,
  staticStrictPolicy,
} from '../policy/peer-authentication.ts';
import type { PeerAuthenticationLevels } from '../policy/peer-authentication.ts';
import { waypointPolicy, waypointPolicyName } from '../policy/waypoint-policy.ts';
import { GATEWAY_LABEL } from './labels.ts';
import { selectsLabels } from '../../../lib/kubernetes/label-selector.ts';
import type { Labels } from '../../../lib/kubernetes/label-selector.ts';
import type { MeshBase } from './mesh-base.ts';
import { authorizationResource, sameResource } from './resource.ts';
import type { MappedResource } from './resource.ts';
import { labelIndexValues, selectorIndexValue } from './selectors.ts';

const EVERY = '';

/** Policies, and which of them a workload lists. */
export class MeshPolicies {
  readonly converted: Mapped<AuthorizationPolicy, ConvertedPolicy>;
  /** The policies to send. */
  readonly resources: readonly Keyed<MappedResource>[];
  readonly #base: MeshBase;
  readonly #selecting: Index<ConvertedPolicy>;
  readonly #levels: Memo<PeerAuthenticationLevels>;
  readonly #gatewayPods: Index<Pod>;

  constructor(base: MeshBase) {
    const { graph, objects } = base;
    this.#base = base;
    const peersOf = objects.PeerAuthentication.index((peer) => [namespaceOf(peer), EVERY]);
    this.#gatewayPods = objects.Pod.index((pod) => {
      const name = pod.metadata.labels?.[GATEWAY_LABEL];
      return name === undefined ? [] : [`${namespaceOf(pod)}/${name}`];
    });
    this.converted = new Mapped(
      graph,
      objects.AuthorizationPolicy,
      (reading, policy) =>
        base.namespace(reading, namespaceOf(policy)).discovered
          ? convertPolicy(policy, base.mesh(reading).policies)
          : undefined,
      isDeepStrictEqual,
    );
    this.#selecting = this.converted.index(({ authorization, selector }) =>
      authorization === null || selector === null
        ? []
        : [selectorIndexValue(authorization.namespace, selector)],
    );
    this.#levels = new Memo(graph, (reading, namespace) => {
      const root = base.mesh(reading).policies.rootNamespace;
      return peerAuthenticationLevels(
        namespace,
        reading.list(peersOf, namespace),
        reading.list(peersOf, root),
        root,
      );
    });
    const sent = new Mapped(
      graph,
      this.converted,
      (_reading, { authorization }) =>
        authorization === null ? undefined : authorizationResource(authorization),
      sameResource,
    );
    const converted = new Mapped(
      graph,
      objects.PeerAuthentication,
      (reading, peer) => this.#convertedPeer(reading, peer),
      sameResource,
    );
    const once = new Source<string>(graph);
    const strict = new Mapped(
      graph,
      once,
      (reading) =>
        reading.list(peersOf, EVERY).length === 0
          ? undefined
          : authorizationResource(staticStrictPolicy(base.mesh(reading).policies.rootNamespace)),
      sameResource,
    );
    once.set(EVERY, EVERY);
    const allowed = new Mapped(
      graph,
      objects.Gateway,
      (reading, gateway) => this.#waypointPolicy(reading, gateway),
      sameResource,
    );
    this.resources = [sent, converted, strict, allowed];
  }

  /** Keys of the policies that a workload with these labels lists (docs/spec/istiod-ambient.md §2.4), sorted. */
  listed(reading: Reading, namespace: string, labels: Labels): string[] {
    const root = this.#base.mesh(reading).policies.rootNamespace;
    const keys = new Set<string>();
    for (const from of new Set([namespace, root])) {
      for (const value of labelIndexValues(from, labels)) {
        for (const { authorization, selector } of reading.list(this.#selecting, value)) {
          if (authorization === null || selector === null) continue;
          if (selectsLabels(selector, labels)) {
            keys.add(`${authorization.namespace}/${authorization.name}`);
          }
        }
      }
    }
    const peer = peerAuthenticationKey(labels, this.#levelsOf(reading, namespace));
    if (peer !== null) keys.add(peer);
    return [...keys].sort();
  }

  /** Keys of the policies that allow only these waypoints; none when the mesh does not ask for them. */
  ofWaypoints(reading: Reading, waypoints: Iterable<string | null>): string[] {
    if (this.#base.mesh(reading).allowFromWaypoint !== true) return [];
    const keys = new Set<string>();
    for (const key of waypoints) {
      if (key === null || this.#accountsOf(reading, key).length === 0) continue;
      keys.add(`${key.slice(0, key.indexOf('/'))}/${waypointPolicyName(key)}`);
    }
    return [...keys];
  }

  #levelsOf(reading: Reading, namespace: string): PeerAuthenticationLevels {
    return present(reading.get(this.#levels, namespace), 'levels are always computed');
  }

  #convertedPeer(reading: Reading, peer: PeerAuthentication): MappedResource | undefined {
    const namespace = namespaceOf(peer);
    if (!this.#base.namespace(reading, namespace).discovered) return undefined;
    const levels = this.#levelsOf(reading, namespace);
    if (!levels.workload.includes(peer)) return undefined;
    const policy = convertedPeerAuthentication(peer, levels);
    return policy === null ? undefined : authorizationResource(policy);
  }

  #waypointPolicy(reading: Reading, gateway: Gateway): MappedResource | undefined {
    const mesh = this.#base.mesh(reading);
    if (mesh.allowFromWaypoint !== true) return undefined;
    const key = `${namespaceOf(gateway)}/${gateway.metadata.name}`;
    if (reading.get(this.#base.waypoints, key) === undefined) return undefined;
    const accounts = this.#accountsOf(reading, key);
    if (accounts.length === 0) return undefined;
    return authorizationResource(waypointPolicy(key, accounts, mesh.trustDomain));
  }

  /** The service accounts of the pods of a waypoint, sorted. */
  #accountsOf(reading: Reading, waypoint: string): string[] {
    const pods = reading.list(this.#gatewayPods, waypoint);
    return [...new Set(pods.map(({ spec }) => spec.serviceAccountName ?? 'default'))].sort();
  }
}
