import type { Deadline } from '../../../lib/actor/actor.ts';
import type { ProxyPresence } from '../../../lib/bus/catalog.ts';
import type { Presence } from '../../../lib/bus/contract.ts';
import { pause } from '../../../lib/clock/clock.ts';
import type { Clock } from '../../../lib/clock/clock.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { PRESENCE_MISSING_MAX, TAKEOVER_POLL_MS } from '../limits.ts';
import { admission } from './admission.ts';
import { coveredByOthers } from './handover.ts';
import type { ListeningPod } from './handover.ts';
import { Neighbours } from './neighbours.ts';

/** What the process is told of its place among the proxies of its node. */
export interface GenerationOptions {
  /** Generation. */
  readonly group: number;
  /** This process, and no other. */
  readonly member: string;
  /** How long a proxy that was told to end goes on accepting while nobody else listens for its pods, milliseconds. */
  readonly handoverMs: number;
  /** The ports of a pod's listeners. */
  readonly podPorts: readonly number[];
}

/** What it asks of the process. */
export interface GenerationDependencies {
  readonly clock: Clock;
  readonly log: Logger;
  readonly presence: Presence<ProxyPresence>;
  /** Told whether the process is kept from beginning by what it lacks. */
  waits(waiting: boolean): void;
  /** Whether the node agent's pods are all served. */
  serves(): boolean;
  /** Identities of the node without a certificate. */
  missing(): readonly string[];
  pods(): Iterable<ListeningPod>;
  ports(): Readonly<Record<string, number | null>>;
  listenersByPort(netnsFd: number): ReadonlyMap<number, number>;
  /** Of the process; throws where they cannot be read. */
  residentBytes(): number;
}

/**
 * This process among the proxies of its node: when it may begin, when it may stop accepting, and what the others are told
 * (docs/decisions/generations.md).
 */
export class Generation {
  readonly #options: GenerationOptions;
  readonly #deps: GenerationDependencies;
  readonly #neighbours: Neighbours;
  #state: ProxyPresence['state'] = 'starting';
  #residentBytes = 0;

  constructor(options: GenerationOptions, deps: GenerationDependencies) {
    this.#options = options;
    this.#deps = deps;
    const { clock, log, presence } = deps;
    const { member } = options;
    this.#neighbours = new Neighbours({ clock, log, presence, member, self: () => this.self() });
  }

  /** What the other proxies of the node said last. */
  get others(): readonly ProxyPresence[] {
    return this.#neighbours.others ?? [];
  }

  /** What this one says. */
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
    let told = '';
    while (!signal.aborted) {
      const verdict = admission(missing(), this.#neighbours.others);
      if (verdict.admitted) {
        log.info({ group: this.#options.group, because: verdict.because }, 'generation.admitted');
        waits(false);
        return true;
      }
      if (verdict.waitsFor !== told) log.info({ ...verdict }, 'generation.waits');
      told = verdict.waitsFor;
      waits(true);
      await pause(clock, TAKEOVER_POLL_MS, signal);
    }
    return false;
  }

  /** Read from a file, for which there may be no descriptor: then the last one, as to say nothing would be to be gone. */
  #measured(): number {
    try {
      this.#residentBytes = this.#deps.residentBytes();
    } catch (error) {
      this.#deps.log.debug({ error: errorText(error) }, 'presence.memory-unknown');
    }
    return this.#residentBytes;
  }

  /** The pods, or whether all are served, changed. */
  changed(): void {
    if (this.#state !== 'starting' || !this.#deps.serves()) return;
    this.#become('serving');
  }

  /** Goes on until somebody else listens for every pod, or the time for that is over. */
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

  /** Says goodbye to the others. Idempotent. */
  close(): Promise<void> {
    return this.#neighbours.close();
  }

  #become(state: ProxyPresence['state']): void {
    this.#state = state;
    this.#neighbours.announce();
  }
}
