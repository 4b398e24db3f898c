import type { Deadline } from '../../../lib/actor/actor.ts';
import type { ProxyPresence } from '../../../lib/bus/catalog.ts';
import type { Presence } from '../../../lib/bus/contract.ts';
import { pause } from '../../../lib/clock/clock.ts';
import type { Clock } from '../../../lib/clock/clock.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { PRESENCE_MISSING_MAX, TAKEOVER_POLL_MS } from '../limits.ts';
import { admission, isServing } from './admission.ts';
import { coveredByOthers } from './handover.ts';
import type { ListeningPod } from './handover.ts';
import { OtherProxies } from './other-proxies.ts';

/** Settings of {@link Generation}. */
export interface GenerationOptions {
  /** The generation of the process. */
  readonly group: number;
  /** Names this process. */
  readonly member: string;
  /** How long a proxy that was told to end goes on accepting while no other one listens for its pods, milliseconds. */
  readonly handoverMs: number;
  /** How long a start waits for certificates after the last sight of another proxy that serves, milliseconds. */
  readonly strangersMs: number;
  /** Ports of a pod's listeners. */
  readonly podPorts: readonly number[];
}

/** Collaborators of {@link Generation}. */
export interface GenerationDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly presence: Presence<ProxyPresence>;
  /** Is told whether missing certificates keep the process from beginning. */
  waits(waiting: boolean): void;
  /** Returns true when all pods of the node agent are served. */
  serves(): boolean;
  /** Identities of the node that have no certificate. */
  missing(): readonly string[];
  pods(): Iterable<ListeningPod>;
  ports(): Readonly<Record<string, number | null>>;
  listenersByPort(netnsFd: number): ReadonlyMap<number, number>;
  /** Memory of the process. Throws when it cannot be read. */
  residentBytes(): number;
}

/**
 * Decides when this process may begin and when it may stop accepting, and announces it to the other proxies of its node
 * (docs/decisions/generations.md).
 */
export class Generation {
  readonly #options: GenerationOptions;
  readonly #deps: GenerationDeps;
  readonly #others: OtherProxies;
  #state: ProxyPresence['state'] = 'starting';
  #residentBytes = 0;

  constructor(options: GenerationOptions, deps: GenerationDeps) {
    this.#options = options;
    this.#deps = deps;
    const { clock, log, presence } = deps;
    const { member } = options;
    this.#others = new OtherProxies({ clock, log, presence, member, self: () => this.self() });
  }

  /** The last announcements of the node's other proxies. */
  get others(): readonly ProxyPresence[] {
    return this.#others.others ?? [];
  }

  /** The announcement of this proxy. */
  self(): ProxyPresence {
    const { missing, pods, ports } = this.#deps;
    return {
      pid: process.pid,
      group: this.#options.group,
      state: this.#state,
      ports: { ...ports() },
      pods: [...pods()].length,
      residentBytes: this.#measured(),
      missing: missing().slice(0, PRESENCE_MISSING_MAX),
    };
  }

  /** Resolves with true when the process may connect to the node agent, false when the signal aborts first. */
  async admitted(signal: AbortSignal): Promise<boolean> {
    const { clock, log, missing, waits } = this.#deps;
    const { strangersMs } = this.#options;
    let aloneSince = clock.monotonic();
    let logged = '';
    while (!signal.aborted) {
      const { others } = this.#others;
      if (others === null || others.some(isServing)) aloneSince = clock.monotonic();
      const aloneMs = clock.monotonic() - aloneSince;
      const verdict = admission(missing(), others, { aloneMs, strangersMs });
      if (verdict.admitted) {
        log.info({ group: this.#options.group, because: verdict.because }, 'generation.admitted');
        waits(false);
        return true;
      }
      if (verdict.waitsFor !== logged) log.info({ ...verdict }, 'generation.waits');
      logged = verdict.waitsFor;
      waits(true);
      await pause(clock, TAKEOVER_POLL_MS, signal);
    }
    return false;
  }

  /** The memory is read from a file. When no descriptor is left for it, the last value is announced: silence would mean gone. */
  #measured(): number {
    try {
      this.#residentBytes = this.#deps.residentBytes();
    } catch (error) {
      this.#deps.log.debug({ error: errorText(error) }, 'presence.memory-unknown');
    }
    return this.#residentBytes;
  }

  /** Call it when the pods changed, or whether all are served. */
  changed(): void {
    if (this.#state !== 'starting' || !this.#deps.serves()) return;
    this.#become('serving');
  }

  /** Waits until another process listens for every pod, or the time for that is over; then announces the drain. */
  async handOver(deadline: Deadline): Promise<void> {
    const { clock, log, pods, listenersByPort } = this.#deps;
    const { handoverMs, podPorts } = this.#options;
    const start = clock.monotonic();
    const covered = (): boolean => coveredByOthers(pods(), podPorts, listenersByPort);
    let handed = covered();
    while (!handed && !deadline.signal.aborted && clock.monotonic() - start < handoverMs) {
      await pause(clock, TAKEOVER_POLL_MS, deadline.signal);
      handed = covered();
    }
    log.info({ handed, waitedMs: Math.round(clock.monotonic() - start) }, 'generation.retires');
    this.#become('draining');
  }

  /** Announces to the others that this proxy leaves. Idempotent. */
  close(): Promise<void> {
    return this.#others.close();
  }

  #become(state: ProxyPresence['state']): void {
    this.#state = state;
    this.#others.announce();
  }
}
