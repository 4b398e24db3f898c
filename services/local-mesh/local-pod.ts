import { join } from 'node:path';
import type { Clock, Timer } from '../../lib/clock/clock.ts';
import type { Logger } from '../../lib/log/logger.ts';
import type { PodRecord } from '../../lib/state/pod-record.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import type { PodStatus } from './manifest-api.ts';
import { endProcesses } from './processes.ts';
import type { MeshPaths } from './mesh-paths.ts';
import { netnsPath } from './namespaces.ts';
import type { Container, NamespaceObject, PodObject } from './objects.ts';
import { PodContainer } from './pod-container.ts';
import { insidePod, removeSandbox } from './pod-namespaces.ts';
import { removePodRecord, writePodRecord } from './pod-records.ts';
import type { PodSandbox } from './pod-namespaces.ts';
import type { PodLine } from './supervisor-api.ts';
import { isEnrolled, placeOf, podPhase, podRecord, samplePod, wantsEnrolment } from './pod-plan.ts';

/** The commands of a pod wait this long for its enrolment, as a kubelet waits for the CNI. */
const ENROLMENT_WAIT_MS = 10_000;
/** Time between SIGTERM and SIGKILL for the commands of a removed pod. */
const POD_GRACE_MS = 2_000;

/** Dependencies of a {@link LocalPod}. */
export interface LocalPodDeps {
  readonly paths: MeshPaths;
  readonly clock: Clock;
  readonly log: Logger;
  /** Called when the pod's status may have changed. */
  readonly onChange: () => void;
}

/** One pod on this machine: its sandbox, record and commands. */
export class LocalPod {
  readonly sandbox: PodSandbox;
  readonly slot: number;
  readonly #deps: LocalPodDeps;
  readonly #containers: PodContainer[] = [];
  #object: PodObject;
  #record = '';
  #timer: Timer | null = null;
  #started = false;
  #removed = false;
  #ambient = false;
  /** Whether the node's default server serves the pod; true for a pod that does not need it. */
  serving: boolean;
  /** The last status that the control plane accepted. */
  reported = '';

  constructor(object: PodObject, sandbox: PodSandbox, slot: number, deps: LocalPodDeps) {
    this.#object = object;
    this.sandbox = sandbox;
    this.slot = slot;
    this.#deps = {
      ...deps,
      log: deps.log.child({ pod: `${object.metadata.namespace}/${object.metadata.name}` }),
    };
    this.serving = samplePod(object, sandbox) === null;
  }

  get object(): PodObject {
    return this.#object;
  }

  /** Takes changed labels and annotations: rewrites the record and starts commands that waited for enrolment. */
  async update(object: PodObject, namespace: NamespaceObject | undefined): Promise<void> {
    this.#object = object;
    this.#ambient = wantsEnrolment(object, namespace);
    await this.#writeRecord(podRecord(object, namespace, placeOf(this.sandbox)));
    if (this.#started) return;
    if (!wantsEnrolment(object, namespace) || isEnrolled(object)) {
      await this.#startCommands();
      return;
    }
    this.#timer ??= this.#deps.clock.after(ENROLMENT_WAIT_MS, () => {
      this.#deps.log.warn('pod.started-before-enrolment');
      this.#startCommands().catch((error: unknown) => {
        this.#deps.log.error({ error: errorText(error) }, 'pod.start-failed');
      });
    });
  }

  async #startCommands(): Promise<void> {
    if (this.#started || this.#removed) return;
    this.#started = true;
    this.#timer?.cancel();
    const commands = this.#object.spec.containers.filter(({ command }) => command.length > 0);
    for (const container of commands) {
      if (this.#removed) return;
      const running = new PodContainer(this.#containerSpec(container), this.#deps);
      this.#containers.push(running);
      await running.start();
    }
    this.#deps.onChange();
  }

  #containerSpec(container: Container): ConstructorParameters<typeof PodContainer>[0] {
    const { namespace, name } = this.#object.metadata;
    const { paths } = this.#deps;
    const [enter = 'nsenter', ...options] = insidePod(this.sandbox);
    const inDirectory = ['sh', '-c', 'cd "$0" && exec "$@"', container.workingDir];
    return {
      command: [enter, ...options, ...inDirectory, ...container.command, ...container.args],
      env: {
        PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
        HOME: '/root',
        HOSTNAME: name,
        ...Object.fromEntries(container.env.map((variable) => [variable.name, variable.value])),
      },
      logFile: join(paths.logsDir, `pod.${namespace}.${name}.${container.name}.log`),
      restartPolicy: this.#object.spec.restartPolicy,
    };
  }

  async #writeRecord(record: PodRecord): Promise<void> {
    const text = JSON.stringify(record);
    if (text === this.#record) return;
    await writePodRecord(this.#deps.paths, this.sandbox.node.name, record);
    this.#record = text;
  }

  /** The status for the control plane. */
  status(): PodStatus {
    const waiting = this.#object.spec.containers.some(({ command }) => command.length > 0);
    const states = this.#containers.map((container) => container.state);
    const { phase, ready } = podPhase(states, this.serving && (this.#started || !waiting));
    return {
      uid: this.#object.metadata.uid,
      phase,
      ready,
      podIPs: [this.sandbox.addresses.ipv4, this.sandbox.addresses.ipv6],
      netns: netnsPath(this.sandbox.netns),
    };
  }

  /** The pod in the supervisor's answers. */
  line(): PodLine {
    const { metadata, spec } = this.#object;
    const { ipv4, ipv6 } = this.sandbox.addresses;
    return {
      uid: metadata.uid,
      namespace: metadata.namespace,
      name: metadata.name,
      node: this.sandbox.node.name,
      ip: ipv4,
      ips: [ipv4, ipv6],
      netns: netnsPath(this.sandbox.netns),
      serviceAccount: spec.serviceAccountName,
      phase: this.status().phase,
      ambient: this.#ambient,
    };
  }

  /** Ends all processes of the pod, withdraws its record and removes its namespaces. */
  async remove(): Promise<void> {
    await this.halt();
    await this.#endStrays();
    await removePodRecord(this.#deps.paths, this.sandbox.node.name, this.#object.metadata.uid);
    await removeSandbox(this.sandbox);
  }

  /** Ends processes that left their command's process group, and commands that entered from outside. */
  async #endStrays(): Promise<void> {
    const { hostNetwork, mountsFile, netns } = this.sandbox;
    // A host-network pod shares its network namespace with others; its mount namespace is its own.
    const ended = hostNetwork
      ? await endProcesses('mnt', [mountsFile], POD_GRACE_MS)
      : await endProcesses('net', [netnsPath(netns)], POD_GRACE_MS);
    if (ended > 0) this.#deps.log.info({ processes: ended }, 'pod.strays-ended');
  }

  /** Ends only the commands. The end of the mesh removes the rest of all pods at once. */
  async halt(): Promise<void> {
    this.#removed = true;
    this.#timer?.cancel();
    await Promise.all(this.#containers.map((container) => container.stop(POD_GRACE_MS)));
  }
}
