/** Marks the pods that their nodes serve, by the nodes' `enrolments` tables. */
import type { Bus } from '../../../lib/bus/redis-bus.ts';
import type { TableReader } from '../../../lib/bus/table-reader.ts';
import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { MAX_NODES } from '../limits.ts';
import type { KubeObject, Pod } from '../manifests/kinds.ts';
import { namespaceOf } from '../manifests/kinds.ts';
import { REDIRECTION_ANNOTATION } from '../store/admission.ts';
import type { ObjectChange, ObjectStore } from '../store/object-store.ts';
import { setRedirection } from '../store/pod-changes.ts';
import { NodeRows } from './node-rows.ts';

/** Dependencies of an {@link EnrolmentFollower}. */
export interface EnrolmentFollowerDeps {
  readonly bus: Pick<Bus, 'reader'>;
  readonly store: ObjectStore;
  readonly clock: Clock;
  readonly log: Logger;
  /** Called for each row that cannot be read. */
  readonly malformed: () => void;
  /** Most nodes that are followed; default {@link MAX_NODES}. */
  readonly nodesMax?: number;
}

interface FollowedNode {
  readonly rows: NodeRows;
  readonly reader: TableReader;
}

/** Pause after the store refused a change; no other event would repeat it. */
const RETRY_MS = 1_000;

/**
 * Follows every node from its first pod to its last. While Redis is away, or before a node's table was read, pods keep
 * their mark, which is part of the stored object.
 */
export class EnrolmentFollower {
  readonly #deps: EnrolmentFollowerDeps;
  readonly #nodes = new Map<string, FollowedNode>();
  /** Number of pods assigned to each node; a node without pods has no entry. */
  readonly #pods = new Map<string, number>();
  /** Readers of released nodes that are still closing. */
  readonly #closing = new Set<Promise<void>>();
  readonly #dirty = new Set<string>();
  readonly #unsubscribe: () => void;
  #work: Promise<void> | null = null;
  #retry: Timer | null = null;
  #closed = false;

  constructor(deps: EnrolmentFollowerDeps) {
    this.#deps = deps;
    this.#unsubscribe = deps.store.onCommit((changes) => this.#note(changes));
    for (const pod of deps.store.state.ofKind('Pod')) this.#count(pod, 1);
    this.#followMore();
  }

  /** Number of nodes that are followed. */
  get size(): number {
    return this.#nodes.size;
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#unsubscribe();
    this.#retry?.cancel();
    await Promise.all([...this.#nodes.values()].map(({ reader }) => reader.close()));
    await Promise.all(this.#closing);
    await this.#work;
  }

  #note(changes: readonly ObjectChange[]): void {
    const touched = new Set<string>();
    for (const { before, after } of changes) {
      for (const node of [this.#count(before, -1), this.#count(after, 1)]) {
        if (node !== null) touched.add(node);
      }
    }
    if (this.#closed) return;
    let released = false;
    for (const node of touched) {
      if (!this.#pods.has(node)) released = this.#release(node) || released;
    }
    for (const node of touched) if (this.#pods.has(node)) this.#follow(node);
    // A released node makes room for a node beyond the limit.
    if (released) this.#followMore();
    for (const { before, after } of changes) {
      // A node may enrol a pod before this process hears that the pod is there.
      const node = nodeOf(after);
      if (node !== null && nodeOf(before) === null) this.#reconcile(node);
    }
  }

  /** Counts a pod in or out. Returns its node; null for other objects and for pods without a node. */
  #count(object: KubeObject | null, step: 1 | -1): string | null {
    const node = nodeOf(object);
    if (node === null) return null;
    const count = (this.#pods.get(node) ?? 0) + step;
    if (count === 0) this.#pods.delete(node);
    else this.#pods.set(node, count);
    return node;
  }

  #followMore(): void {
    if (this.#pods.size === this.#nodes.size) return;
    for (const node of this.#pods.keys()) if (!this.#follow(node)) return;
  }

  /** False when there is no room for the node. */
  #follow(node: string): boolean {
    if (this.#nodes.has(node)) return true;
    const { bus, log, malformed, nodesMax = MAX_NODES } = this.#deps;
    if (this.#nodes.size >= nodesMax) {
      log.error({ node, limit: nodesMax }, 'enrolments.node-refused');
      return false;
    }
    const rows = new NodeRows(
      () => this.#reconcile(node),
      (key, reason) => {
        malformed();
        log.warn({ node, key, reason }, 'enrolments.row-refused');
      },
    );
    this.#nodes.set(node, { rows, reader: bus.reader('enrolments', { node }, rows.mirror) });
    log.info({ node }, 'enrolments.followed');
    return true;
  }

  /** Ends following a node without pods; false when it was not followed. */
  #release(node: string): boolean {
    const followed = this.#nodes.get(node);
    if (followed === undefined) return false;
    this.#nodes.delete(node);
    this.#dirty.delete(node);
    const closed = followed.reader.close().finally(() => this.#closing.delete(closed));
    this.#closing.add(closed);
    this.#deps.log.info({ node }, 'enrolments.released');
    return true;
  }

  #reconcile(node: string): void {
    if (this.#closed) return;
    this.#dirty.add(node);
    this.#work ??= this.#run();
  }

  async #run(): Promise<void> {
    // Gathers the reports of one turn, and returns from the reporter's call first.
    await Promise.resolve();
    while (this.#dirty.size > 0 && !this.#closed) {
      const nodes = new Set(this.#dirty);
      this.#dirty.clear();
      try {
        await this.#mark(nodes);
      } catch (error) {
        this.#deps.log.error({ error: errorText(error) }, 'enrolments.not-stored');
        for (const node of nodes) this.#dirty.add(node);
        this.#retryLater();
        break;
      }
    }
    // Reset in the turn of the last check, so that a later note starts a new run.
    this.#work = null;
  }

  async #mark(nodes: ReadonlySet<string>): Promise<void> {
    const { store, log } = this.#deps;
    const wrong = [...store.state.ofKind('Pod')].filter(
      (pod) => nodes.has(pod.spec.nodeName ?? '') && this.#isWrong(pod),
    );
    if (wrong.length === 0) return;
    await store.transact((draft) => {
      for (const pod of wrong) {
        const { name, uid } = pod.metadata;
        const target = { namespace: namespaceOf(pod), name, uid: uid ?? '' };
        setRedirection(draft, target, this.#isServed(pod));
      }
    });
    log.info({ pods: wrong.length }, 'enrolments.applied');
  }

  #isServed(pod: Pod): boolean {
    const rows = this.#nodes.get(pod.spec.nodeName ?? '')?.rows;
    return rows?.serves(pod.metadata.uid ?? '') ?? false;
  }

  #isWrong(pod: Pod): boolean {
    if (this.#nodes.get(pod.spec.nodeName ?? '')?.rows.synced !== true) return false;
    const marked = pod.metadata.annotations?.[REDIRECTION_ANNOTATION] === 'enabled';
    return marked !== this.#isServed(pod);
  }

  #retryLater(): void {
    this.#retry?.cancel();
    this.#retry = this.#deps.clock.after(RETRY_MS, () => {
      for (const node of this.#dirty) this.#reconcile(node);
    });
  }
}

function nodeOf(object: KubeObject | null): string | null {
  return object?.kind === 'Pod' ? (object.spec.nodeName ?? null) : null;
}
