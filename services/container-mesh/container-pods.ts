/**
 * The kubelet for pods that are containers: finds the containers with a pod label, writes records for the node agents and
 * reports pod status to the control plane.
 */
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../lib/clock/clock.ts';
import { ContainerWatch } from '../../lib/docker/container-watch.ts';
import { findPods } from '../../lib/docker/find-pods.ts';
import type { PodSandboxContainer } from '../../lib/docker/pod-container.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { podRecordSchema } from '../../lib/state/pod-record.ts';
import type { PodRecord } from '../../lib/state/pod-record.ts';
import type { ManifestApi } from '../local-mesh/manifest-api.ts';
import { podRecordsDir } from '../local-mesh/mesh-paths.ts';
import type { MeshPaths } from '../local-mesh/mesh-paths.ts';
import { ObjectWatch } from '../local-mesh/object-watch.ts';
import type { PodObject } from '../local-mesh/objects.ts';
import { isEnrolled, wantsEnrolment } from '../local-mesh/pod-plan.ts';
import { removePodRecord, writePodRecord } from '../local-mesh/pod-records.ts';
import type { PodLine } from '../local-mesh/supervisor-api.ts';
import { podManifest, recordOf } from './container-plan.ts';
import type { Engine } from './engine.ts';

/** Dependencies and settings of the pod search. */
export interface ContainerPodsDeps {
  readonly engine: Engine;
  readonly api: ManifestApi;
  readonly paths: MeshPaths;
  /** Names of the nodes that a container may be assigned to. */
  readonly nodes: readonly string[];
  readonly clock: Clock;
  readonly log: Logger;
  /** The command line that runs something in a container. */
  enter(container: string): readonly string[];
  /** Called when containers may have come or gone. */
  onChange(): Promise<void>;
}

interface KnownPod {
  readonly sandbox: PodSandboxContainer;
  readonly uid: string;
  readonly record: string;
  readonly status: string;
}

/** Follows the containers of one engine until stopped. */
export class ContainerPods {
  readonly #deps: ContainerPodsDeps;
  readonly #watch: ObjectWatch;
  readonly #containers: ContainerWatch;
  readonly #known = new Map<string, KnownPod>();
  /** Problems already logged, so that each is logged once. */
  readonly #told = new Set<string>();
  /** Containers that were seen enrolled. */
  readonly #enrolled = new Set<string>();

  constructor(deps: ContainerPodsDeps) {
    this.#deps = deps;
    this.#containers = new ContainerWatch({ ...deps, look: () => this.#reconcile() });
    this.#watch = new ObjectWatch(deps, () => {
      this.#containers.look();
      return Promise.resolve();
    });
  }

  /** Removes records of containers that are gone, then follows the engine. Rejects when the engine does not answer. */
  async start(): Promise<void> {
    await this.#dropStaleRecords();
    this.#watch.start();
    this.#containers.start();
  }

  /** Stops following. Records stay, because the pods continue. */
  async stop(): Promise<void> {
    await Promise.all([this.#watch.stop(), this.#containers.stop()]);
  }

  /** The pods, and whether each that should be enrolled is. */
  lines(): readonly (PodLine & { readonly enrolled: boolean })[] {
    return [...this.#known].flatMap(([key, known]) => {
      const pod = this.#watch.pods.get(key);
      return pod === undefined ? [] : [this.#line(pod, known)];
    });
  }

  #line(pod: PodObject, { sandbox }: KnownPod): PodLine & { readonly enrolled: boolean } {
    const { namespace, name, uid } = pod.metadata;
    const [first = ''] = sandbox.addresses;
    return {
      uid,
      namespace,
      name,
      node: sandbox.node,
      ip: first,
      ips: sandbox.addresses,
      netns: `/proc/${sandbox.pid}/ns/net`,
      serviceAccount: pod.spec.serviceAccountName,
      phase: sandbox.ready ? 'Running' : 'Pending',
      ambient: wantsEnrolment(pod, this.#watch.namespaces.get(namespace)),
      enrolled: isEnrolled(pod),
      enter: {
        application: this.#deps.enter(sandbox.application),
        network: this.#deps.enter(sandbox.id),
      },
    };
  }

  async #reconcile(): Promise<void> {
    try {
      await this.#deps.onChange();
      const found = await this.#find();
      for (const [key, known] of this.#known) {
        if (found.get(key)?.id !== known.sandbox.id) await this.#forget(key, known);
      }
      for (const sandbox of found.values()) await this.#tellAlone(sandbox);
    } catch (error) {
      this.#deps.log.warn({ error: errorText(error) }, 'containers.reconcile-failed');
    }
  }

  #find(): Promise<ReadonlyMap<string, PodSandboxContainer>> {
    const { engine, nodes } = this.#deps;
    return findPods(engine, {
      has: (node) => nodes.includes(node),
      unnamed: null,
      refused: (container, problem) => this.#tellOnce(container, problem),
    });
  }

  /** Tells the control plane and the node agent of one pod. A refused pod does not stop the others. */
  async #tellAlone(sandbox: PodSandboxContainer): Promise<void> {
    try {
      await this.#tell(sandbox);
    } catch (error) {
      if (!(error instanceof MeshError)) throw error;
      if (error.code === 'MANIFEST_INVALID') this.#tellOnce(sandbox.id, error.message);
      else this.#deps.log.warn({ pod: sandbox.key, error: error.message }, 'pod.not-told');
    }
  }

  async #tell(sandbox: PodSandboxContainer): Promise<void> {
    const { api, log, paths } = this.#deps;
    const pod = this.#watch.pods.get(sandbox.key);
    if (pod === undefined) {
      await this.#create(sandbox);
      return;
    }
    if (pod.spec.nodeName !== '' && pod.spec.nodeName !== sandbox.node) {
      this.#tellOnce(sandbox.id, `the manifest puts ${sandbox.key} on ${pod.spec.nodeName}`);
      return;
    }
    const namespace = this.#watch.namespaces.get(pod.metadata.namespace);
    const record = recordOf(sandbox, pod, namespace);
    const known = this.#known.get(sandbox.key);
    const recordText = JSON.stringify(record);
    if (known?.record !== recordText) await writePodRecord(paths, sandbox.node, record);
    const phase = sandbox.ready ? 'Running' : 'Pending';
    const status = { phase, ready: sandbox.ready, podIPs: sandbox.addresses } as const;
    const statusText = JSON.stringify(status);
    const { namespace: ns, name, uid } = pod.metadata;
    const accepted =
      known?.status === statusText || (await api.putPodStatus(ns, name, { uid, ...status }));
    this.#known.set(sandbox.key, {
      sandbox,
      uid,
      record: recordText,
      status: accepted ? statusText : '',
    });
    if (known === undefined) log.info({ pod: sandbox.key, node: sandbox.node }, 'pod.found');
    if (wantsEnrolment(pod, namespace) && isEnrolled(pod)) this.#sawEnrolment(sandbox);
  }

  /** Logs a pod's enrolment. Warns when the container ran its application before it, in plaintext. */
  #sawEnrolment(sandbox: PodSandboxContainer): void {
    if (this.#enrolled.has(sandbox.id)) return;
    this.#enrolled.add(sandbox.id);
    const windowMs = this.#deps.clock.now() - sandbox.startedAtMs;
    const facts = { pod: sandbox.key, windowMs };
    if (sandbox.pause) this.#deps.log.info(facts, 'pod.enrolled');
    else this.#deps.log.warn(facts, 'pod.ran-before-enrolment');
  }

  async #create(sandbox: PodSandboxContainer): Promise<void> {
    const object = podManifest(sandbox);
    const source = `container ${sandbox.id.slice(0, 12)}`;
    await this.#deps.api.apply([{ source, index: 0, object }]);
  }

  async #forget(key: string, { sandbox, uid }: KnownPod): Promise<void> {
    const { api, log, paths } = this.#deps;
    const [namespace = '', name = ''] = key.split('/');
    await removePodRecord(paths, sandbox.node, uid);
    await api.putPodStatus(namespace, name, { uid, phase: 'Pending', ready: false, podIPs: [] });
    this.#known.delete(key);
    this.#enrolled.delete(sandbox.id);
    log.info({ pod: key, node: sandbox.node }, 'pod.gone');
  }

  /**
   * Removes records of containers that are gone. A record names a process by its pid; after a restart another process may
   * have that pid.
   */
  async #dropStaleRecords(): Promise<void> {
    const { log, nodes, paths } = this.#deps;
    const live = new Set(
      [...(await this.#find()).values()].map(({ pid }) => `/proc/${pid}/ns/net`),
    );
    for (const node of nodes) {
      for (const file of await readdir(podRecordsDir(paths, node))) {
        const record = await readRecord(join(podRecordsDir(paths, node), file));
        if (record === null || (record.netns !== null && live.has(record.netns))) continue;
        await removePodRecord(paths, node, record.uid);
        log.info({ pod: `${record.namespace}/${record.name}`, node }, 'pod.stale-record-removed');
      }
    }
  }

  #tellOnce(id: string, problem: string): void {
    const key = `${id} ${problem}`;
    if (this.#told.has(key)) return;
    this.#told.add(key);
    this.#deps.log.warn({ container: id.slice(0, 12), problem }, 'container.no-pod');
  }
}

/** Null for a file that is not a record; the node agent logs it. */
async function readRecord(path: string): Promise<PodRecord | null> {
  try {
    return podRecordSchema.parse(JSON.parse(await readFile(path, 'utf8')));
  } catch {
    return null;
  }
}
