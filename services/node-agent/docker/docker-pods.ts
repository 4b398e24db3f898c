/** Follows the containers of a Docker engine that are pods of this node. */
import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../../../lib/clock/clock.ts';
import { ContainerWatch } from '../../../lib/docker/container-watch.ts';
import { EngineView } from '../../../lib/docker/engine-view.ts';
import { findPods } from '../../../lib/docker/find-pods.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import type { PodRecord } from '../../../lib/state/pod-record.ts';
import type { PodSet, PodSource } from '../pod-source.ts';
import { containerRecord } from './container-record.ts';

/** Settings and dependencies of {@link DockerPods}. */
export interface DockerPodsOptions {
  /** Unix socket of the engine. */
  readonly socket: string;
  readonly node: string;
  /** A mount of the node's `/proc`. */
  readonly procDir: string;
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
  #records: ReadonlyMap<string, PodRecord> | null = null;
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

  /** The engine names the namespaces itself. */
  place(): void {}

  close(): Promise<void> {
    return this.#watch.stop();
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
    const known = this.#records;
    this.#records = records;
    const same =
      known?.size === records.size && [...records].every(([uid, one]) => known.get(uid) === one);
    if (!same) this.#onPods({ pods: records, unreadable: new Set() });
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
      const before = this.#records?.get(record.uid);
      records.set(record.uid, isDeepStrictEqual(before, record) ? (before ?? record) : record);
    }
    return records;
  }
}
