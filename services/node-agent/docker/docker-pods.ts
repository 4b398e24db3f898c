/** Follows the containers of a Docker engine that are pods of this node. */
import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../../../lib/clock/clock.ts';
import { ContainerWatch } from '../../../lib/docker/container-watch.ts';
import { EngineView } from '../../../lib/docker/engine-view.ts';
import { findPods } from '../../../lib/docker/find-pods.ts';
import type { PodSandboxContainer } from '../../../lib/docker/pod-container.ts';
import { present } from '../../../lib/errors/assert.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { errnoOf } from '../../../lib/linux/errno.ts';
import { NetnsHandle } from '../../../lib/linux/netns-handle.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import type { PodRecord } from '../../../lib/state/pod-record.ts';
import { eligibility } from '../eligibility.ts';
import type { EligibilityRules } from '../eligibility.ts';
import { holdsAddress } from '../netns/pod-addresses.ts';
import type { PodSet, PodSource } from '../pod-source.ts';
import { containerRecord } from './container-record.ts';
import { StartAgain } from './start-again.ts';

/** Settings and dependencies of {@link DockerPods}. */
export interface DockerPodsOptions {
  /** Unix socket of the engine. */
  readonly socket: string;
  readonly node: string;
  /** A mount of the node's `/proc`. */
  readonly procDir: string;
  readonly rules: EligibilityRules;
  readonly clock: Clock;
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>;
  /** Called for each new problem of the engine. */
  readonly onProblem: () => void;
}

/** Tells the containers that claim to be pods. While the engine is away the pods stay as they are. */
export class DockerPods implements PodSource {
  readonly #options: DockerPodsOptions;
  readonly #engine: EngineView;
  readonly #watch: ContainerWatch;
  readonly #again: StartAgain;
  #records: ReadonlyMap<string, PodRecord> | null = null;
  /** The pods whose containers start: the engine does not list them as running yet. */
  readonly #starting = new Map<string, PodRecord>();
  /** Whether it was told that containers run before they are enrolled. */
  #toldUnheld = false;
  #onPods: (set: PodSet) => void = () => undefined;
  /** The engine's last failure, which is told once. */
  #problem: string | null = null;
  /** Problems of containers that run, each told once. */
  #refused: ReadonlySet<string> = new Set();

  constructor(options: DockerPodsOptions) {
    this.#options = options;
    const engine = new EngineView(options.socket);
    this.#engine = engine;
    this.#watch = new ContainerWatch({ ...options, engine, look: () => this.#look() });
    this.#again = new StartAgain({ ...options, engine });
  }

  /** Begins to follow. Resolves at once; the first set is told when the engine has answered. */
  start(onPods: (set: PodSet) => void): Promise<void> {
    this.#onPods = onPods;
    this.#watch.start();
    return Promise.resolve();
  }

  /** Returns the pod of this name, as it was last seen; null when there is none. */
  find(namespace: string, name: string): Promise<PodRecord | null> {
    const records = [...(this.#records?.values() ?? [])];
    const record = records.find((pod) => pod.namespace === namespace && pod.name === name);
    return Promise.resolve(record ?? null);
  }

  /**
   * Tells the pod of a container that is starting. Returns why it cannot be one, or null. Throws STATE_UNAVAILABLE while the engine
   * has not told its containers yet.
   */
  hold(record: PodRecord): string | null {
    const known = this.#records;
    if (known === null) {
      throw new MeshError('STATE_UNAVAILABLE', "the engine's containers are not known yet");
    }
    const { uid, namespace, name } = record;
    const other = [...known.values()].find(
      (pod) => pod.uid !== uid && pod.namespace === namespace && pod.name === name && lives(pod),
    );
    if (other !== undefined)
      return `${namespace}/${name} exists already: ${other.uid.slice(0, 12)}`;
    const kept = same(known.get(uid), record);
    this.#starting.set(uid, kept);
    this.#tell(new Map(known).set(uid, kept));
    return null;
  }

  /** The engine names the namespaces itself. */
  place(): void {}

  async close(): Promise<void> {
    await this.#watch.stop();
    await this.#again.stop();
  }

  async #look(): Promise<void> {
    let records: ReadonlyMap<string, PodRecord>;
    try {
      records = await this.#read();
      this.#problem = null;
    } catch (error) {
      const reason = errorText(error);
      if (this.#problem === reason) return;
      this.#problem = reason;
      this.#options.onProblem();
      this.#options.log.error({ reason }, 'pods.engine-unreadable');
      return;
    }
    const first = this.#records === null;
    this.#tell(records);
    if (first) this.#again.start();
  }

  #tell(records: ReadonlyMap<string, PodRecord>): void {
    const known = this.#records;
    this.#records = records;
    const unchanged =
      known?.size === records.size && [...records].every(([uid, one]) => known.get(uid) === one);
    if (!unchanged) this.#onPods({ pods: records, unreadable: new Set() });
  }

  /** Reads the records; one that has not changed is the same object as before. */
  async #read(): Promise<ReadonlyMap<string, PodRecord>> {
    const { node, procDir } = this.#options;
    const refused = new Set<string>();
    const found = await findPods(this.#engine, {
      has: (name) => name === node,
      unnamed: node,
      refused: (container, problem) => refused.add(`${container.slice(0, 12)}: ${problem}`),
    });
    for (const problem of refused) {
      if (!this.#refused.has(problem)) this.#options.log.warn({ problem }, 'container.no-pod');
    }
    this.#refused = refused;
    const records = new Map<string, PodRecord>();
    for (const sandbox of found.values()) {
      const record = containerRecord(sandbox, procDir);
      this.#checkHeld(sandbox, record);
      records.set(record.uid, same(this.#records?.get(record.uid), record));
    }
    for (const [uid, record] of this.#starting) {
      if (records.get(uid)?.netns === record.netns || !lives(record)) this.#starting.delete(uid);
      else records.set(uid, record);
    }
    return records;
  }

  /** Tells once that a container of the mesh ran before its pod was known. */
  #checkHeld({ runtime, key }: PodSandboxContainer, record: PodRecord): void {
    const { rules, log } = this.#options;
    const before = this.#records;
    if (this.#toldUnheld || before === null || before.get(record.uid)?.netns === record.netns)
      return;
    if (!eligibility(record, rules).enrol) return;
    this.#toldUnheld = true;
    log.warn({ pod: key, container: record.uid, runtime }, 'container.ran-before-enrolment');
  }
}

/** The record as it was when nothing of it has changed. */
function same(before: PodRecord | undefined, record: PodRecord): PodRecord {
  return before !== undefined && isDeepStrictEqual(before, record) ? before : record;
}

/** Whether the container's process is there; another could have its number, in a network with other addresses. */
function lives({ netns, addresses }: PodRecord): boolean {
  let handle: NetnsHandle;
  try {
    handle = NetnsHandle.open(present(netns, 'the record of a container names its namespace'));
  } catch (error) {
    if (errnoOf(error) === null) throw error;
    return false;
  }
  try {
    return holdsAddress(handle, addresses);
  } finally {
    handle.release();
  }
}
