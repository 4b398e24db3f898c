import { isDeepStrictEqual } from 'node:util';
import type { Clock, Timer } from '../../lib/clock/clock.ts';
import { MeshError, asMeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { FreshReading } from '../../lib/files/fresh-reading.ts';
import type { Logger } from '../../lib/log/logger.ts';
import type { Authority, AuthoritySource } from './authority.ts';
import { CurrentAuthority } from './current-authority.ts';
import type { Holders } from './holders.ts';
import { ROTATION_CHECK_MS } from './limits.ts';
import { beginRotation, isExpiring, nextState } from './rotation.ts';
import { authorityOf, newRoot, newState } from './state.ts';
import type { CaState } from './state.ts';
import type { CaStores } from './stores.ts';

/** The rules of an own root. */
export interface OwnAuthorityOptions {
  readonly trustDomain: string;
  /** Time in which a step of a rotation reaches all CA processes and the files of all nodes. */
  readonly settleMs: number;
}

/** Collaborators of an {@link OwnAuthority}. */
export interface OwnAuthorityDeps {
  readonly clock: Clock;
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>;
  readonly stores: Pick<CaStores, 'state' | 'published'>;
  readonly holders: Pick<Holders, 'live' | 'refresh'>;
  /** True in the one CA process that rotates. */
  readonly leads: () => boolean;
}

/**
 * The CA's own root: made on the first start, kept in a store, rotated in steps. It follows the store, because other
 * processes and `weft ca` change it. The owner closes it.
 */
export class OwnAuthority implements AuthoritySource {
  readonly #options: OwnAuthorityOptions;
  readonly #deps: OwnAuthorityDeps;
  readonly #current: CurrentAuthority;
  readonly #reading = new FreshReading(() => this.#reload());
  #state: CaState | null = null;
  #unfollow: (() => void) | null = null;
  #timer: Timer | null = null;
  #checking: Promise<void> = Promise.resolve();
  #busy = false;
  #rotationProblem: string | null = null;

  constructor(options: OwnAuthorityOptions, deps: OwnAuthorityDeps) {
    this.#options = options;
    this.#deps = deps;
    this.#current = new CurrentAuthority(deps.log);
  }

  get current(): Authority {
    return this.#current.value;
  }

  get problem(): string | null {
    return this.#current.problem;
  }

  onChange(listener: (authority: Authority) => void): () => void {
    return this.#current.onChange(listener);
  }

  /**
   * Reads the state, or makes it on the first start. Throws STATE_INVALID for an unusable state, which is never replaced,
   * and for a missing one while roots are published: a new root would cut off every workload.
   */
  async start(): Promise<void> {
    const { clock, log } = this.#deps;
    const store = this.#deps.stores.state;
    let stored = await store.read();
    if (stored === null) {
      await this.#refuseLostRoot();
      try {
        await store.create(await newState(this.#options.trustDomain, clock.now()));
        log.info({ where: store.where }, 'root.created');
      } catch (error) {
        // Another process was faster; its root is used.
        if (asMeshError(error, 'STATE_UNAVAILABLE').code !== 'STATE_CONFLICT') throw error;
      }
      stored = await store.read();
    }
    if (stored === null) {
      throw new MeshError('STATE_UNAVAILABLE', `the root in ${store.where} vanished`);
    }
    this.#use(stored.state);
    this.#unfollow = store.follow(() => void this.#reading.run());
    this.#timer = clock.every(ROTATION_CHECK_MS, () => this.#check());
  }

  async close(): Promise<void> {
    this.#unfollow?.();
    this.#unfollow = null;
    this.#timer?.cancel();
    this.#current.close();
    await this.#reading.run();
    await this.#checking;
  }

  async #refuseLostRoot(): Promise<void> {
    const { state, published } = this.#deps.stores;
    const roots = await published();
    if (roots === null) return;
    throw new MeshError(
      'STATE_INVALID',
      `there is no root key in ${state.where}, but ${roots.where} holds the roots of this mesh: a new root would cut off every workload. Bring the key back (weft ca restore FILE), or begin anew (weft ca init --replace-root)`,
      { detail: { published: roots.where } },
    );
  }

  #use(state: CaState): void {
    const { stores, clock } = this.#deps;
    const authority = authorityOf(state, stores.state.where, clock.now());
    this.#state = state;
    this.#current.use(authority);
  }

  async #reload(): Promise<void> {
    if (this.#unfollow === null) return;
    const store = this.#deps.stores.state;
    try {
      const stored = await store.read();
      if (stored === null) {
        throw new MeshError(
          'STATE_INVALID',
          `the root key in ${store.where} is gone; this process goes on with the key in its memory. Bring it back: weft ca restore FILE`,
        );
      }
      if (isDeepStrictEqual(stored.state, this.#state)) this.#current.keep();
      else this.#use(stored.state);
    } catch (error) {
      this.#current.refuse(errorText(error));
    }
  }

  #check(): void {
    if (this.#busy || !this.#deps.leads()) return;
    const rotating = this.#state !== null && this.#state.rotation !== null;
    if (!rotating && !this.#expiring()) return;
    this.#busy = true;
    this.#checking = this.#advance().then(
      () => {
        this.#rotationProblem = null;
        this.#busy = false;
      },
      (error: unknown) => {
        this.#busy = false;
        const problem = errorText(error);
        if (problem !== this.#rotationProblem) {
          this.#deps.log.error({ problem }, 'root-rotation.failed');
        }
        this.#rotationProblem = problem;
      },
    );
  }

  #expiring(): boolean {
    const { certificate } = this.current.issuer;
    const { clock } = this.#deps;
    const from = certificate.validFromDate.getTime();
    return isExpiring(from, certificate.validToDate.getTime(), clock.now());
  }

  async #advance(): Promise<void> {
    const { stores, holders, clock, log } = this.#deps;
    const store = stores.state;
    await holders.refresh();
    const stored = await store.read();
    if (stored === null) {
      throw new MeshError('STATE_INVALID', `the root key in ${store.where} is gone`);
    }
    const { state, version } = stored;
    const nowMs = clock.now();
    const next =
      state.rotation === null
        ? beginRotation(state, await newRoot(this.#options.trustDomain, nowMs), 'expiring', nowMs)
        : nextState(state, holders.live(), { nowMs, settleMs: this.#options.settleMs });
    if (next === state) return;
    await store.replace(next, version);
    if (next.rotation?.step !== state.rotation?.step) {
      log.info(
        { from: state.rotation?.step ?? null, to: next.rotation?.step ?? 'retired' },
        'root-rotation.stepped',
      );
    }
    await this.#reading.run();
  }
}
