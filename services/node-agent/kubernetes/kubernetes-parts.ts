/** The parts of a node agent on Kubernetes: its pods, their annotations and Events, and the node's rules for kubelet. */
import { join } from 'node:path';
import type { ActorContext, Deadline } from '../../../lib/actor/actor.ts';
import type { Clock } from '../../../lib/clock/clock.ts';
import { asMeshError } from '../../../lib/errors/mesh-error.ts';
import { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import type { ConnectionSource } from '../../../lib/kubernetes/connection.ts';
import { findConnection } from '../../../lib/kubernetes/connection.ts';
import { reflectorMetrics } from '../../../lib/kubernetes/reflection.ts';
import { resourcePath } from '../../../lib/kubernetes/resource.ts';
import { ifPresent } from '../../../lib/kubernetes/status.ts';
import { WriteQueue, writeQueueMetrics } from '../../../lib/kubernetes/write-queue.ts';
import type { ChosenHostProbes } from '../../../lib/redirect/choose-host-probes.ts';
import type { RedirectOptions } from '../../../lib/redirect/rules.ts';
import type { PodRecord } from '../../../lib/state/pod-record.ts';
import { removeNodeState } from '../host/node-state.ts';
import { ProbeRules } from '../host/probe-rules.ts';
import type { PodDeps } from '../pod-enrolment.ts';
import type { NodeFacts } from '../proof/findings.ts';
import { CILIUM_CONFIG, ciliumConflicts } from '../proof/cilium.ts';
import { blockingPolicy, readPolicies } from '../proof/network-policies.ts';
import { KubernetesPods } from './kubernetes-pods.ts';
import { PodEvents } from './pod-events.ts';
import { RedirectionAnnotations } from './redirection-annotations.ts';

const NETWORK_POLICIES = {
  group: 'networking.k8s.io',
  versions: ['v1'],
  plural: 'networkpolicies',
  namespaced: true,
} as const;

const CONFIG_MAPS = {
  group: '',
  versions: ['v1'],
  plural: 'configmaps',
  namespaced: true,
} as const;

/** The node. */
export interface KubernetesSite {
  readonly node: string;
  /** A mount of the node's `/proc`. */
  readonly procDir: string;
  readonly probeAddress: RedirectOptions['probeAddress'];
  readonly hostProbes: ChosenHostProbes;
  /** A mount of the node's files; null where the agent is not in a container. */
  readonly hostRoot: string | null;
}

/** Owns the connection to the API server. The owner disposes it. */
export class KubernetesParts {
  readonly pods: KubernetesPods;
  readonly probes: ProbeRules;
  readonly #client: KubernetesClient;
  readonly #clock: Clock;
  readonly #writes: WriteQueue;
  readonly #annotations: RedirectionAnnotations;
  readonly events: PodEvents;
  readonly #hostRoot: string | null;
  readonly #made = new AsyncDisposableStack();

  private constructor(
    client: KubernetesClient,
    context: ActorContext,
    { node, procDir, probeAddress, hostProbes, hostRoot }: KubernetesSite,
  ) {
    this.#hostRoot = hostRoot;
    const { clock, log, metrics } = context;
    this.#client = client;
    this.#clock = clock;
    this.#made.defer(() => client.close());
    const writes: WriteQueue = new WriteQueue({
      clock,
      log,
      metrics: writeQueueMetrics(metrics, () => writes.size),
    });
    this.#made.defer(() => writes.close());
    this.#writes = writes;
    this.#annotations = new RedirectionAnnotations({
      client,
      writes,
      pod: (uid) => this.pods.byUid(uid),
    });
    this.events = new PodEvents({ client, writes, clock, node });
    this.pods = new KubernetesPods({
      client,
      clock,
      log,
      metrics: reflectorMetrics(metrics),
      node,
      supervise: (work) => context.supervise('pods of the API server', work),
      onRedirection: (pod) => this.#annotations.check(pod),
    });
    this.#made.defer(() => this.pods.close());
    this.probes = new ProbeRules({
      netns: join(procDir, '1/ns/net'),
      procDir,
      probeAddress,
      chosen: hostProbes,
      clock,
      log,
      supervise: (work) => context.supervise('rules for probes', work),
    });
    this.#made.defer(() => this.probes.close());
  }

  /** Connects. Throws as `findConnection`. */
  static async open(
    source: ConnectionSource,
    context: ActorContext,
    site: KubernetesSite,
  ): Promise<KubernetesParts> {
    const client = new KubernetesClient(await findConnection(source), {
      clock: context.clock,
      metrics: context.metrics,
      userAgent: `weft-${context.actor}`,
    });
    return new KubernetesParts(client, context, site);
  }

  /** Returns rows that also keep the pods' annotations and the node's rules. */
  beside(rows: PodDeps['rows']): PodDeps['rows'] {
    return {
      set: (uid, row) => {
        rows.set(uid, row);
        // A pod without a proxy is not ready, but it is alive: kubelet must reach it.
        this.probes.set(uid, row.enrolment.addresses);
        this.#annotations.set(uid, row.enrolment.state, row.inherited);
      },
      delete: (uid) => {
        rows.delete(uid);
        this.probes.set(uid, null);
        this.#annotations.set(uid, null);
      },
    };
  }

  /**
   * Stops writing the node's rules and removes them and Weft's files, because the agent leaves the node. Annotations that are
   * still being removed have until the deadline. Rejects with NETNS_RULES or the file system's error.
   */
  async leaveNode(deadline: Deadline): Promise<void> {
    await this.probes.close();
    await this.probes.remove();
    if (this.#hostRoot !== null) await removeNodeState(this.#hostRoot);
    await this.#writes.settled(deadline.signal);
  }

  /** Reads from the API server what a proof of these pods needs. */
  async prove(records: readonly PodRecord[]): Promise<NonNullable<NodeFacts['cluster']>> {
    const problems = [...this.pods.problems];
    if (this.probes.problem !== null) problems.push(this.probes.problem);
    try {
      const path = resourcePath(NETWORK_POLICIES);
      const skewMs = await this.#skew();
      const policies = readPolicies(await this.#client.get(path));
      const cilium = await ifPresent(this.#client.get(resourcePath(CONFIG_MAPS, CILIUM_CONFIG)));
      const conflicts = cilium === null ? [] : ciliumConflicts(cilium);
      const blocked = records.flatMap(({ namespace, name, labels }) => {
        const policy = blockingPolicy(policies, { namespace, labels });
        return policy === null ? [] : [{ pod: `${namespace}/${name}`, policy }];
      });
      return { problems, skewMs, blocked, conflicts };
    } catch (error) {
      problems.push(asMeshError(error, 'KUBERNETES_INVALID').message);
      return { problems, skewMs: null, blocked: [], conflicts: [] };
    }
  }

  /** The API server's clock minus this one's; its answers tell whole seconds. */
  async #skew(): Promise<number | null> {
    const answer = await this.#client.stream({ path: '/version' });
    answer.resume();
    const { date } = answer.headers;
    return date === undefined ? null : Date.parse(date) - this.#clock.now();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#made.disposeAsync();
  }
}
