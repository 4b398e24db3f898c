/** Marks the pods that their nodes serve, from the nodes' enrolment tables. */
import type { Bus, TableReader } from '../../../lib/bus/contract.ts';
import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { MAX_NODES } from '../limits.ts';
import type { Pod } from '../manifests/kinds.ts';
import { namespaceOf } from '../manifests/kinds.ts';
import { REDIRECTION_ANNOTATION } from '../store/admission.ts';
import type { ObjectChange, ObjectStore } from '../store/object-store.ts';
import { setRedirection } from '../store/pod-changes.ts';
import { NodeRows } from './node-rows.ts';

/** What the follower needs. */
export interface EnrolmentFollowerDeps {
  readonly bus: Pick<Bus, 'reader'>;
  readonly store: ObjectStore;
  readonly clock: Clock;
  readonly log: Logger;
  readonly malformed: () => void;
}

interface FollowedNode {
  readonly rows: NodeRows;
  readonly reader: TableReader;
}

/** After the store refused a change; nothing else would bring it up again. */
const RETRY_MS = 1_000;

/**
 * Follows every node that a pod is assigned to. While Redis is away, or a node was never heard of, pods keep the
 * mark they have: it is part of the stored object.
 */
export class EnrolmentFollower {
  readonly #deps: EnrolmentFollowerDeps;
  readonly #nodes = new Map<string, FollowedNode>();
  readonly #dirty = new Set<string>();
  readonly #unsubscribe: () => void;
  #work: Promise<void> | null = null;
  #retry: Timer | null = null;
  #closed = false;

  constructor(deps: EnrolmentFollowerDeps) {
    this.#deps = deps;
    this.#unsubscribe = deps.store.onCommit((changes) => this.#note(changes));
    for (const pod of deps.store.state.ofKind('Pod')) this.#follow(pod.spec.nodeName);
  }

  /** Names of the nodes whose enrolments are known. */
  get syncedNodes(): string[] {
    return [...this.#nodes].filter(([, { rows }]) => rows.synced).map(([name]) => name);
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
    await this.#work;
  }

  #note(changes: readonly ObjectChange[]): void {
    for (const { before, after } of changes) {
      // A new pod may be enrolled before this process hears of it.
      if (before !== null || after?.kind !== 'Pod') continue;
      this.#follow(after.spec.nodeName);
      if (after.spec.nodeName !== undefined) this.#reconcile(after.spec.nodeName);
    }
  }

  #follow(node: string | undefined): void {
    if (node === undefined || this.#closed || this.#nodes.has(node)) return;
    const { bus, log, malformed } = this.#deps;
    if (this.#nodes.size >= MAX_NODES) {
      log.error({ node, limit: MAX_NODES }, 'enrolments.too-many-nodes');
      return;
    }
    const rows = new NodeRows(
      () => this.#reconcile(node),
      (key, reason) => {
        malformed();
        log.warn({ node, key, reason }, 'enrolments.malformed-row');
      },
    );
    this.#nodes.set(node, { rows, reader: bus.reader('enrolments', { node }, rows) });
    log.info({ node }, 'enrolments.following');
  }

  #reconcile(node: string): void {
    if (this.#closed) return;
    this.#dirty.add(node);
    this.#work ??= this.#run();
  }

  async #run(): Promise<void> {
    // Joins what is reported in the same turn, and leaves the reporter's call first.
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
    // In the same turn as the last look: what is noted after it must start a run of its own.
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
