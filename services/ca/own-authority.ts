import type { Clock, Timer } from '../../lib/clock/clock.ts';
import { MeshError, asMeshError, errorText } from '../../lib/errors/mesh-error.ts';
import type { Logger } from '../../lib/log/logger.ts';
import type { Authority, RotationReport } from './authority.ts';
import { FollowedAuthority } from './followed-authority.ts';
import type { Holders } from './holders.ts';
import { ROTATION_CHECK_MS } from './limits.ts';
import { beginRotation, isExpiring, nextState, waitOf } from './rotation.ts';
import { authorityOf, newRoot, newState } from './state.ts';
import type { CaState } from './state.ts';
import type { CaStores } from './stores.ts';
import type { FollowedMesh } from './followed-mesh.ts';

/** The rules of an own root. */
export interface OwnAuthorityOptions {
  /** Time in which a step of a rotation reaches all CA processes and the files of all nodes. */
  readonly settleMs: number;
  /** Longest life of a certificate. */
  readonly maxLifetimeMs: number;
}

/** Collaborators of an {@link OwnAuthority}. */
export interface OwnAuthorityDeps {
  readonly clock: Clock;
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>;
  readonly stores: Pick<CaStores, 'state' | 'published'>;
  readonly holders: Pick<Holders, 'live' | 'refresh' | 'begin' | 'takeOver'>;
  /** Its trust domain names new roots. */
  readonly mesh: Pick<FollowedMesh, 'current'>;
  /** True in the one CA process that rotates. */
  readonly leads: () => boolean;
}

/** The CA's own root: made on the first start, kept in a store that other processes and `weft ca` change, rotated in steps. */
export class OwnAuthority extends FollowedAuthority<CaState> {
  readonly #options: OwnAuthorityOptions;
  readonly #deps: OwnAuthorityDeps;
  #timer: Timer | null = null;
  #checking: Promise<void> = Promise.resolve();
  #busy = false;
  #rotationProblem: string | null = null;

  constructor(options: OwnAuthorityOptions, deps: OwnAuthorityDeps) {
    super(deps.log);
    this.#options = options;
    this.#deps = deps;
  }

  get where(): string {
    return this.#deps.stores.state.where;
  }

  override get rotation(): RotationReport | null {
    const state = this.content;
    if (state === null || state.rotation === null) return null;
    const { clock, holders } = this.#deps;
    const { settleMs } = this.#options;
    const { rotation } = state;
    const { missing } = waitOf(state, rotation, holders.live(), { nowMs: clock.now(), settleMs });
    return { step: rotation.step, sinceMs: rotation.sinceMs, missing: missing.length };
  }

  /**
   * Reads the state, or makes it on the first start. Throws STATE_INVALID for an unusable state, which is never replaced,
   * and for a missing one while roots are published: a new root would cut off every workload.
   */
  async start(): Promise<void> {
    const { clock, log, mesh, holders } = this.#deps;
    const store = this.#deps.stores.state;
    let stored = await store.read();
    if (stored === null) {
      await this.#refuseLostRoot();
      // Before there is a key: another process that finds one must not take it for a key of before.
      await holders.begin();
      try {
        await store.create(await newState(mesh.current.trustDomain, clock.now()));
        log.info({ where: store.where }, 'root.created');
      } catch (error) {
        // Another process was faster; its root is used.
        if (asMeshError(error, 'STATE_UNAVAILABLE').code !== 'STATE_CONFLICT') throw error;
      }
      stored = await store.read();
    } else {
      await holders.takeOver(clock.now() + this.#options.maxLifetimeMs);
    }
    if (stored === null) {
      throw new MeshError('STATE_UNAVAILABLE', `the root in ${store.where} vanished`);
    }
    this.begin(stored.state, (changed) => store.follow(changed));
    this.#timer = clock.every(ROTATION_CHECK_MS, () => this.#check());
  }

  override async close(): Promise<void> {
    this.#timer?.cancel();
    await super.close();
    await this.#checking;
  }

  protected async read(): Promise<CaState> {
    const store = this.#deps.stores.state;
    const stored = await store.read();
    if (stored !== null) return stored.state;
    throw new MeshError(
      'STATE_INVALID',
      `the root key in ${store.where} is gone; this process goes on with the key in its memory. Bring it back: weft ca restore FILE`,
    );
  }

  protected parse(state: CaState): Authority {
    const { stores, clock, log } = this.#deps;
    const authority = authorityOf(state, stores.state.where, clock.now());
    const known = new Set(this.content?.rotation?.skipped);
    const skipped = (state.rotation?.skipped ?? []).filter((name) => !known.has(name));
    if (skipped.length > 0) {
      log.warn(
        { holders: skipped, effect: 'they refuse the new root until they have read it' },
        'root-rotation.holders-skipped',
      );
    }
    return authority;
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

  #check(): void {
    if (this.#busy || !this.#deps.leads()) return;
    const { content, current } = this;
    if ((content?.rotation ?? null) === null && !this.#isExpiring(current)) return;
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

  #isExpiring({ issuer: { certificate } }: Authority): boolean {
    const from = certificate.validFromDate.getTime();
    return isExpiring(from, certificate.validToDate.getTime(), this.#deps.clock.now());
  }

  async #advance(): Promise<void> {
    const { stores, holders, clock, log, mesh } = this.#deps;
    const store = stores.state;
    await holders.refresh();
    const stored = await store.read();
    if (stored === null) {
      throw new MeshError('STATE_INVALID', `the root key in ${store.where} is gone`);
    }
    const { state, version } = stored;
    const nowMs = clock.now();
    // The state may be newer than the one in memory: its rotation may have been given up, or its root restored.
    let next = state;
    if (state.rotation !== null) {
      next = nextState(state, holders.live(), { nowMs, settleMs: this.#options.settleMs });
    } else if (this.#isExpiring(authorityOf(state, store.where, nowMs))) {
      const root = await newRoot(mesh.current.trustDomain, nowMs);
      next = beginRotation(state, root, 'expiring', nowMs);
    }
    if (next === state) return;
    await store.replace(next, version);
    if (next.rotation?.step !== state.rotation?.step) {
      log.info(
        { from: state.rotation?.step ?? null, to: next.rotation?.step ?? 'retired' },
        'root-rotation.stepped',
      );
    }
    await this.refresh();
  }
}
