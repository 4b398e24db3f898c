import type { Clock, Timer } from '../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { HOLDER_RETRY_MS, MAX_HOLDERS } from './limits.ts';

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
  /** True once {@link begin} or {@link merge} was done. */
  begun(): Promise<boolean>;
  /** Notes that every certificate from now on has its holder here. */
  begin(): Promise<void>;
  /** Adds these holders, or merges them as {@link mergedHolder}; may remove holders whose stored end has passed. */
  merge(changed: readonly Holder[], nowMs: number): Promise<void>;
}

/** Returns a stored holder with a newer report: its end never gets earlier, because another process may have issued more. */
export function mergedHolder(stored: Holder | undefined, changed: Holder): Holder {
  return { ...changed, untilMs: Math.max(changed.untilMs, stored?.untilMs ?? 0) };
}

/** Collaborators of {@link Holders}. */
export interface HoldersDeps {
  readonly clock: Clock;
  readonly log: Pick<Logger, 'warn'>;
  readonly store: HolderStore;
}

/** Stands for all that hold certificates of a key which signed before holders were kept. */
export const EARLIER_HOLDERS = '(issued earlier)';

/** The end of a holder's certificates is kept in steps of this part of their life, so that a renewal rarely writes. */
const END_STEPS = 4;

/**
 * The holders of unexpired certificates, and the roots that each trusts: a rotation waits for them. Changes are written before
 * the certificate is handed out, so that a CA that is killed forgets none. There is one write at a time; changes that come
 * meanwhile are written together.
 */
export class Holders {
  readonly #deps: HoldersDeps;
  readonly #known = new Map<string, Holder>();
  readonly #unwritten = new Set<string>();
  /** The names that the store has. */
  readonly #stored = new Set<string>();
  #retry: Timer | null = null;
  #writing: Promise<void> = Promise.resolve();
  /** The write after the one that is under way; null when none is asked for. */
  #next: Promise<void> | null = null;
  #problem: string | null = null;
  #closed = false;

  constructor(deps: HoldersDeps) {
    this.#deps = deps;
  }

  /** Reads the holders of all CA processes; own changes that are not written yet stay. */
  async refresh(): Promise<void> {
    for (const stored of await this.#deps.store.read()) {
      const { name } = stored;
      const own = this.#known.get(name) ?? stored;
      this.#stored.add(name);
      const isNewer = this.#unwritten.has(name);
      this.#known.set(name, isNewer ? mergedHolder(stored, own) : mergedHolder(own, stored));
    }
  }

  /** Keeps holders from now on, for a key that has signed nothing. */
  begin(): Promise<void> {
    return this.#deps.store.begin();
  }

  /**
   * Keeps holders from now on, for a key that may have signed before: of another CA, or of a backup. A rotation then waits for
   * `notAfterMs`, unless an operator skips {@link EARLIER_HOLDERS}. Does nothing when they are kept already.
   */
  async takeOver(notAfterMs: number): Promise<void> {
    const { log, store } = this.#deps;
    if (await store.begun()) return;
    await this.note(EARLIER_HOLDERS, null, notAfterMs);
    log.warn(
      { holder: EARLIER_HOLDERS, until: new Date(notAfterMs).toISOString() },
      'certificate-holders.unknown',
    );
  }

  /** The holders of unexpired certificates. */
  live(): Holder[] {
    const now = this.#deps.clock.now();
    return [...this.#known.values()].filter(({ untilMs }) => untilMs > now);
  }

  /**
   * Notes that a holder gets a certificate; resolves when that is written. A known holder goes on when it cannot be written
   * now. Throws IDENTITY_UNAVAILABLE for a new holder that cannot be written, or beyond {@link MAX_HOLDERS}: a rotation would
   * not wait for it.
   */
  async note(name: string, roots: readonly string[] | null, notAfterMs: number): Promise<void> {
    const { clock } = this.#deps;
    const known = this.#known.get(name);
    if (known === undefined && this.#known.size >= MAX_HOLDERS) this.#makeRoom();
    const step = Math.max(1_000, (notAfterMs - clock.now()) / END_STEPS);
    const current = known?.untilMs ?? 0;
    // Any process may have removed it since.
    if (current <= clock.now()) this.#stored.delete(name);
    const untilMs = notAfterMs <= current ? current : Math.ceil(notAfterMs + step);
    const sorted = roots === null ? null : [...roots].sort();
    const isKnown = known !== undefined && untilMs === current && sameRoots(known.roots, sorted);
    if (isKnown && this.#stored.has(name)) return;
    this.#known.set(name, { name, roots: sorted, untilMs });
    this.#unwritten.add(name);
    await this.#flush();
    if (this.#stored.has(name)) return;
    throw new MeshError(
      'IDENTITY_UNAVAILABLE',
      `${name} cannot be noted as a holder of certificates: ${this.#problem ?? 'the CA ends'}`,
    );
  }

  /** Writes outstanding changes; later ones are not written. */
  async close(): Promise<void> {
    this.#retry?.cancel();
    const last = this.#flush();
    this.#closed = true;
    await last;
  }

  #makeRoom(): void {
    this.#forgetEnded(this.#deps.clock.now());
    if (this.#known.size < MAX_HOLDERS) return;
    throw new MeshError(
      'IDENTITY_UNAVAILABLE',
      `${MAX_HOLDERS} nodes and accounts hold certificates already, the most that are followed`,
    );
  }

  /** Resolves after a write of all changes so far. One that is under way may have begun before them. */
  #flush(): Promise<void> {
    if (this.#closed) return this.#writing;
    this.#next ??= this.#writing.then(() => {
      this.#next = null;
      this.#writing = this.#write();
      return this.#writing;
    });
    return this.#next;
  }

  #retryLater(): void {
    if (this.#closed) return;
    this.#retry ??= this.#deps.clock.after(HOLDER_RETRY_MS, () => {
      this.#retry = null;
      void this.#flush();
    });
  }

  /** Forgets what this process knows; the store is shared. */
  #forgetEnded(now: number): void {
    for (const { name, untilMs } of this.#known.values()) {
      if (untilMs > now) continue;
      this.#known.delete(name);
      this.#unwritten.delete(name);
      this.#stored.delete(name);
    }
  }

  async #write(): Promise<void> {
    if (this.#unwritten.size === 0) return;
    const { clock, store, log } = this.#deps;
    const names = [...this.#unwritten];
    this.#unwritten.clear();
    const now = clock.now();
    this.#forgetEnded(now);
    const changed = names.flatMap((name) => this.#known.get(name) ?? []);
    try {
      await store.merge(changed, now);
      for (const { name } of changed) this.#stored.add(name);
      this.#problem = null;
    } catch (error) {
      for (const { name } of changed) this.#unwritten.add(name);
      this.#retryLater();
      const problem = errorText(error);
      if (problem !== this.#problem) log.warn({ problem }, 'certificate-holders.write-failed');
      this.#problem = problem;
    }
  }
}

function sameRoots(left: readonly string[] | null, right: readonly string[] | null): boolean {
  return left?.join() === right?.join();
}
