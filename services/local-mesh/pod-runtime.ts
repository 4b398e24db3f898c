/** The local kubelet of all nodes: turns the control plane's Pods into namespaces with processes in them. */
import type { Clock, Timer } from '../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { HostsFiles } from './hosts-files.ts';
import { LocalPod } from './local-pod.ts';
import type { ManifestApi } from './manifest-api.ts';
import type { MeshPaths } from './mesh-paths.ts';
import { ObjectWatch } from './object-watch.ts';
import type { ObjectChange } from './object-watch.ts';
import type { PodObject } from './objects.ts';
import { createSandboxes, mountsFile, removeSandbox } from './pod-namespaces.ts';
import type { PodSandbox } from './pod-namespaces.ts';
import { SlotPool, nodeLoads, pickNode, samplePod, sandboxKey } from './pod-plan.ts';
import { inParallel } from './run-command.ts';
import type { SampleFleet } from './sample-fleet.ts';
import { podAddresses, podNetns } from './topology.ts';
import type { MeshPlan, NodePlan } from './topology.ts';

/** Dependencies of a {@link PodRuntime}. */
export interface PodRuntimeDeps {
  readonly plan: MeshPlan;
  readonly paths: MeshPaths;
  readonly api: ManifestApi;
  readonly samples: SampleFleet;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Delay before another attempt to make a pod. */
const RETRY_MS = 2_000;
/** Pods removed at once; each removal runs system commands and waits for processes to end. */
const PARALLEL_REMOVALS = 8;
/** Changes within this time are handled together. */
const GATHER_MS = 10;

/** Runs the pods of the local mesh. */
export class PodRuntime {
  readonly #deps: PodRuntimeDeps;
  readonly #watch: ObjectWatch;
  readonly #hosts: HostsFiles;
  readonly #pods = new Map<string, LocalPod>();
  readonly #slots = new Map<string, SlotPool>();
  readonly #dirty = new Set<string>();
  /** Pods whose node was full; they are tried again when a pod is removed. */
  readonly #unplaced = new Set<string>();
  #timer: Timer | null = null;
  #turn: Promise<void> = Promise.resolve();
  #stopped = false;

  constructor(deps: PodRuntimeDeps) {
    this.#deps = deps;
    this.#hosts = new HostsFiles(deps.paths.hostsDir);
    this.#watch = new ObjectWatch(deps, (change) => this.#onChange(change));
    for (const node of deps.plan.nodes) this.#slots.set(node.name, new SlotPool());
  }

  /** Begins to follow the control plane. */
  start(): void {
    this.#watch.start();
  }

  /** The running pods. */
  pods(): readonly LocalPod[] {
    return [...this.#pods.values()];
  }

  /** Stops following and ends the pods' commands. The caller removes namespaces and files. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#timer?.cancel();
    await this.#watch.stop();
    await this.#turn;
    await Promise.all(this.pods().map((pod) => pod.halt()));
  }

  /** Checks all pods again; a node's default server restarted, so its pods' readiness may have changed. */
  refresh(): void {
    for (const key of this.#pods.keys()) this.#dirty.add(key);
    this.#schedule(GATHER_MS);
  }

  async #onChange(change: ObjectChange): Promise<void> {
    if (change.kind === 'hosts') {
      await this.#hosts.set(change.key, change.entry);
      return;
    }
    if (change.kind === 'namespace') {
      for (const [key, pod] of this.#pods) {
        if (pod.object.metadata.namespace === change.name) this.#dirty.add(key);
      }
    } else this.#dirty.add(change.key);
    this.#schedule(GATHER_MS);
  }

  #schedule(delayMs: number): void {
    if (this.#timer !== null || this.#stopped) return;
    this.#timer = this.#deps.clock.after(delayMs, () => {
      this.#timer = null;
      this.#turn = this.#turn.then(() => this.#reconcile());
    });
  }

  async #reconcile(): Promise<void> {
    if (this.#stopped) return;
    const keys = [...this.#dirty];
    this.#dirty.clear();
    try {
      await this.#removeStale(keys);
      await this.#createMissing(keys);
      for (const key of keys) await this.#updatePod(key);
      await this.#syncSamples();
      await this.#report(keys);
    } catch (error) {
      this.#deps.log.error({ error: errorText(error) }, 'pods.reconcile-failed');
      for (const key of keys) this.#dirty.add(key);
      this.#schedule(RETRY_MS);
    }
  }

  async #removeStale(keys: readonly string[]): Promise<void> {
    const stale = keys.flatMap((key) => {
      const pod = this.#pods.get(key);
      const wanted = this.#watch.pods.get(key);
      if (pod === undefined) return [];
      const same = wanted !== undefined && sandboxKey(wanted) === sandboxKey(pod.object);
      return same ? [] : [[key, pod] as const];
    });
    await inParallel(stale, PARALLEL_REMOVALS, async ([key, pod]) => {
      await pod.remove();
      this.#giveSlot(pod);
      this.#pods.delete(key);
      this.#deps.log.info({ pod: key, netns: pod.sandbox.netns }, 'pod.removed');
    });
  }

  #giveSlot(pod: LocalPod): void {
    this.#slots.get(pod.sandbox.node.name)?.give(pod.slot);
    if (this.#unplaced.size === 0) return;
    for (const key of this.#unplaced) this.#dirty.add(key);
    this.#unplaced.clear();
    this.#schedule(GATHER_MS);
  }

  async #createMissing(keys: readonly string[]): Promise<void> {
    const planned: [string, LocalPod][] = [];
    let loads: Map<string, number> | null = null;
    for (const key of keys) {
      const wanted = this.#watch.pods.get(key);
      if (wanted === undefined || this.#pods.has(key)) continue;
      try {
        if (wanted.spec.nodeName === '') {
          loads ??= nodeLoads(this.#slots.keys(), this.#watch.pods.values());
          await this.#bind(wanted, loads);
          continue;
        }
        const pod = await this.#plan(wanted, planned);
        if (pod !== null) planned.push([key, pod]);
      } catch (error) {
        // The other pods of this round must not wait for this one.
        this.#deps.log.warn({ pod: key, error: errorText(error) }, 'pod.plan-failed');
        this.#again(key);
      }
    }
    if (planned.length === 0) return;
    try {
      await createSandboxes(planned.map(([, pod]) => pod.sandbox));
      this.#adopt(planned);
    } catch (error) {
      this.#deps.log.warn({ pods: planned.length, error: errorText(error) }, 'pods.create-failed');
      // One pod's failure must not hold up the others: make the pods one at a time.
      for (const [, pod] of planned) await this.#discard(pod);
      for (const one of planned) await this.#createOne(one);
    }
  }

  async #createOne(planned: [string, LocalPod]): Promise<void> {
    const [key, pod] = planned;
    try {
      await createSandboxes([pod.sandbox]);
      this.#adopt([planned]);
    } catch (error) {
      this.#deps.log.error({ pod: key, error: errorText(error) }, 'pod.create-failed');
      await this.#discard(pod);
      this.#giveSlot(pod);
      this.#again(key);
    }
  }

  /** Removes the remains of a pod that could not be made. */
  async #discard(pod: LocalPod): Promise<void> {
    try {
      await removeSandbox(pod.sandbox);
    } catch (error) {
      const { netns } = pod.sandbox;
      this.#deps.log.warn({ netns, error: errorText(error) }, 'pod.remains-left');
    }
  }

  #again(key: string): void {
    this.#dirty.add(key);
    this.#schedule(RETRY_MS);
  }

  #adopt(planned: readonly (readonly [string, LocalPod])[]): void {
    for (const [key, pod] of planned) {
      this.#pods.set(key, pod);
      this.#deps.log.info({ pod: key, netns: pod.sandbox.netns }, 'pod.created');
    }
  }

  /** Null for a pod that cannot run now; the reason is logged. */
  async #plan(
    object: PodObject,
    planned: readonly (readonly [string, LocalPod])[],
  ): Promise<LocalPod | null> {
    const { namespace, name } = object.metadata;
    const key = `${namespace}/${name}`;
    const node = this.#deps.plan.nodes.find((one) => one.name === object.spec.nodeName);
    const slots = this.#slots.get(object.spec.nodeName);
    if (node === undefined || slots === undefined) {
      this.#deps.log.warn({ pod: key, nodeName: object.spec.nodeName }, 'pod.unknown-node');
      return null;
    }
    const hostsFile = await this.#hosts.fileFor(namespace);
    const address = node.link.ipv4;
    const resolvConf = object.spec.hostNetwork
      ? null
      : await this.#hosts.resolvConfFor(namespace, { name: node.name, address });
    const slot = slots.take();
    if (slot === null) {
      this.#deps.log.warn({ pod: key, node: node.name, pods: slots.size }, 'pod.node-full');
      this.#unplaced.add(key);
      return null;
    }
    const netns = object.spec.hostNetwork ? node.netns : this.#netnsFor(object, planned);
    const sandbox: PodSandbox = {
      uid: object.metadata.uid,
      netns,
      node,
      hostNetwork: object.spec.hostNetwork,
      addresses: object.spec.hostNetwork ? node.link : podAddresses(node, slot),
      hostsFile,
      resolvConf,
      mountsFile: mountsFile(this.#deps.paths.mountsDir, object.metadata.uid),
    };
    return new LocalPod(object, sandbox, slot, {
      paths: this.#deps.paths,
      clock: this.#deps.clock,
      log: this.#deps.log,
      onChange: () => {
        this.#dirty.add(key);
        this.#schedule(GATHER_MS);
      },
    });
  }

  #netnsFor(object: PodObject, planned: readonly (readonly [string, LocalPod])[]): string {
    const { plan } = this.#deps;
    const taken = new Set([
      plan.control.netns,
      ...plan.nodes.map((node) => node.netns),
      ...this.pods().map((pod) => pod.sandbox.netns),
      ...planned.map(([, pod]) => pod.sandbox.netns),
    ]);
    const { namespace, name } = object.metadata;
    return podNetns(plan.mesh, namespace, name, (candidate) => taken.has(candidate));
  }

  /** The scheduler: binds a pod that names no node to the node with the fewest pods. */
  async #bind(object: PodObject, loads: Map<string, number>): Promise<void> {
    const { namespace, name, uid } = object.metadata;
    const nodeName = pickNode(loads);
    const bound = await this.#deps.api.bindPod(namespace, name, { uid, nodeName });
    if (!bound) return;
    loads.set(nodeName, (loads.get(nodeName) ?? 0) + 1);
    this.#deps.log.info({ pod: `${namespace}/${name}`, node: nodeName }, 'pod.bound');
  }

  async #updatePod(key: string): Promise<void> {
    const pod = this.#pods.get(key);
    const wanted = this.#watch.pods.get(key);
    if (pod === undefined || wanted === undefined) return;
    await pod.update(wanted, this.#watch.namespaces.get(wanted.metadata.namespace));
  }

  async #syncSamples(): Promise<void> {
    await Promise.all(this.#deps.plan.nodes.map((node) => this.#syncNode(node)));
  }

  async #syncNode(node: NodePlan): Promise<void> {
    const pods = this.pods().filter((pod) => pod.sandbox.node === node);
    const served = pods.flatMap((pod) => {
      const sample = samplePod(pod.object, pod.sandbox);
      return sample === null ? [] : [{ pod, sample }];
    });
    try {
      const failures = await this.#deps.samples.serve(
        node.name,
        served.map(({ sample }) => sample),
      );
      for (const { pod, sample } of served) {
        const reason = failures[sample.uid];
        pod.serving = reason === undefined;
        if (reason !== undefined) {
          this.#deps.log.warn({ pod: sample.name, reason }, 'pod.not-serving');
        }
      }
    } catch (error) {
      if (!(error instanceof MeshError)) throw error;
      // The server process is starting; the fleet asks for a refresh once it answers.
      for (const { pod } of served) pod.serving = false;
      this.#deps.log.debug({ node: node.name, error: error.message }, 'samples.unavailable');
      this.refreshLater(served.map(({ pod }) => pod));
    }
  }

  /** Checks these pods again later. */
  refreshLater(pods: readonly LocalPod[]): void {
    for (const { object } of pods) {
      this.#dirty.add(`${object.metadata.namespace}/${object.metadata.name}`);
    }
    this.#schedule(RETRY_MS / 10);
  }

  async #report(keys: readonly string[]): Promise<void> {
    for (const key of keys) {
      const pod = this.#pods.get(key);
      if (pod === undefined) continue;
      const status = pod.status();
      const text = JSON.stringify(status);
      if (pod.reported === text) continue;
      const { namespace, name } = pod.object.metadata;
      const accepted = await this.#deps.api.putPodStatus(namespace, name, status);
      if (accepted) pod.reported = text;
      else this.#deps.log.info({ pod: key }, 'pod.status-not-wanted');
    }
  }
}
