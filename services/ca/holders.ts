import type { Clock, Timer } from '../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { HOLDER_WRITE_DELAY_MS, MAX_HOLDERS } from './limits.ts';

/** A node or account that holds certificates of this CA. */
export interface Holder {
  /** The node's name; `namespace/account on node` of a pod that asks for itself; `namespace/account` without a node. */
  readonly name: string;
  /** Short names of the roots that it trusts, sorted, as it reported last; null for a proxy that reports none. */
  readonly roots: readonly string[] | null;
  /** At least the end of its last certificate, milliseconds since the epoch. */
  readonly untilMs: number;
}

/** Keeps the holders where every CA process finds them. */
export interface HolderStore {
  read(): Promise<readonly Holder[]>;
  /** Adds or replaces these holders and removes those named. */
  merge(changed: readonly Holder[], gone: readonly string[]): Promise<void>;
}

/** Collaborators of {@link Holders}. */
export interface HoldersDeps {
  readonly clock: Clock;
  readonly log: Pick<Logger, 'warn'>;
  readonly store: HolderStore;
}

/** The end of a holder's certificates is kept in steps of this part of their life, so that a renewal rarely writes. */
const END_STEPS = 4;

/**
 * The holders of unexpired certificates, and the roots that each trusts: a rotation waits for them. Changes are written
 * together, at most one write at a time.
 */
export class Holders {
  readonly #deps: HoldersDeps;
  readonly #known = new Map<string, Holder>();
  readonly #unwritten = new Set<string>();
  #timer: Timer | null = null;
  #writing: Promise<void> | null = null;
  #problem: string | null = null;
  #closed = false;

  constructor(deps: HoldersDeps) {
    this.#deps = deps;
  }

  /** Reads the holders of all CA processes; own changes that are not written yet stay. */
  async refresh(): Promise<void> {
    for (const holder of await this.#deps.store.read()) {
      if (!this.#unwritten.has(holder.name)) this.#known.set(holder.name, holder);
    }
  }

  /** The holders of unexpired certificates. */
  live(): Holder[] {
    const now = this.#deps.clock.now();
    return [...this.#known.values()].filter(({ untilMs }) => untilMs > now);
  }

  /**
   * Notes that a holder gets a certificate. Throws IDENTITY_UNAVAILABLE for a new holder beyond {@link MAX_HOLDERS}: a
   * rotation would not wait for it.
   */
  note(name: string, roots: readonly string[] | null, notAfterMs: number): void {
    const { clock } = this.#deps;
    const known = this.#known.get(name);
    if (known === undefined && this.#known.size >= MAX_HOLDERS) this.#makeRoom();
    const step = Math.max(1_000, (notAfterMs - clock.now()) / END_STEPS);
    const current = known?.untilMs ?? 0;
    const untilMs = notAfterMs <= current ? current : Math.ceil(notAfterMs + step);
    const sorted = roots === null ? null : [...roots].sort();
    if (known !== undefined && untilMs === current && sameRoots(known.roots, sorted)) return;
    this.#known.set(name, { name, roots: sorted, untilMs });
    this.#unwritten.add(name);
    this.#writeSoon();
  }

  /** Writes outstanding changes; later ones are not written. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#timer?.cancel();
    await this.#writing;
    await this.#write();
  }

  #makeRoom(): void {
    const now = this.#deps.clock.now();
    for (const { name, untilMs } of this.#known.values()) {
      if (untilMs <= now) this.#known.delete(name);
    }
    if (this.#known.size < MAX_HOLDERS) return;
    throw new MeshError(
      'IDENTITY_UNAVAILABLE',
      `${MAX_HOLDERS} nodes and accounts hold certificates already, the most that are followed`,
    );
  }

  #writeSoon(): void {
    if (this.#closed || this.#timer !== null || this.#writing !== null) return;
    this.#timer = this.#deps.clock.after(HOLDER_WRITE_DELAY_MS, () => {
      this.#timer = null;
      this.#writing = this.#write().then(() => {
        this.#writing = null;
        if (this.#unwritten.size > 0) this.#writeSoon();
      });
    });
  }

  async #write(): Promise<void> {
    if (this.#unwritten.size === 0) return;
    const { clock, store, log } = this.#deps;
    const names = [...this.#unwritten];
    this.#unwritten.clear();
    const now = clock.now();
    const gone = [...this.#known.values()].filter(({ untilMs }) => untilMs <= now);
    for (const { name } of gone) this.#known.delete(name);
    try {
      await store.merge(
        names.flatMap((name) => this.#known.get(name) ?? []),
        gone.map(({ name }) => name),
      );
      this.#problem = null;
    } catch (error) {
      for (const name of names) this.#unwritten.add(name);
      const problem = errorText(error);
      if (problem !== this.#problem) log.warn({ problem }, 'certificate-holders.write-failed');
      this.#problem = problem;
    }
  }
}

function sameRoots(left: readonly string[] | null, right: readonly string[] | null): boolean {
  return left?.join() === right?.join();
}
