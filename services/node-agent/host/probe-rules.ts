/** Keeps the node's rules for kubelet's probes equal to the enrolled pods. */
import { Backoff } from '../../../lib/clock/backoff.ts';
import { pause } from '../../../lib/clock/clock.ts';
import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import type { ChosenHostProbes } from '../../../lib/redirect/choose-host-probes.ts';
import { runScript } from '../../../lib/redirect/run-script.ts';
import type { RedirectOptions } from '../../../lib/redirect/rules.ts';
import { HOST_RULES_CHECK_MS, RETRY } from '../limits.ts';

/** Collaborators of {@link ProbeRules}. */
export interface ProbeRulesDeps {
  /** File of the node's network namespace. */
  readonly netns: string;
  readonly probeAddress: RedirectOptions['probeAddress'];
  readonly chosen: ChosenHostProbes;
  readonly clock: Clock;
  readonly log: Logger;
  /** Fails the actor when the promise rejects, which is a defect. */
  readonly supervise: (work: Promise<void>) => void;
}

/** Writes all addresses whenever they change, and reads the rules back once a minute. */
export class ProbeRules {
  readonly #deps: ProbeRulesDeps;
  /** Addresses by the uid of their pod. A later pod may have the address of an earlier one that is not gone yet. */
  readonly #pods = new Map<string, readonly string[]>();
  readonly #stop = new AbortController();
  /** Counts the changes of {@link #pods}. */
  #version = 0;
  /** The version last written, and the rules as listed afterwards. */
  #written: { readonly version: number; readonly listed: string } | null = null;
  #work: Promise<void> | null = null;
  #checks: Timer | null = null;
  #problem: string | null = null;

  constructor(deps: ProbeRulesDeps) {
    this.#deps = deps;
  }

  /** Why the rules could not be written or read; null when they are in force. */
  get problem(): string | null {
    return this.#problem;
  }

  /** Begins: call it when every pod was looked at once, so that a restart removes nobody's rule. */
  start(): void {
    this.#checks = this.#deps.clock.every(HOST_RULES_CHECK_MS, () => this.#poke());
    this.#poke();
  }

  /** Sets the addresses of a pod; null = it has left. */
  set(uid: string, addresses: readonly string[] | null): void {
    if (addresses === null) {
      if (!this.#pods.delete(uid)) return;
    } else {
      if (String(this.#pods.get(uid)) === String(addresses)) return;
      this.#pods.set(uid, addresses);
    }
    this.#version += 1;
    if (this.#checks !== null) this.#poke();
  }

  /** Stops; the rules stay. */
  async close(): Promise<void> {
    this.#checks?.cancel();
    this.#stop.abort(new Error('the agent stops'));
    await this.#work;
  }

  /** Removes the rules, also those of an agent that wrote them another way. Rejects with NETNS_RULES when that fails. */
  async remove(): Promise<void> {
    await this.#script(this.#deps.chosen.scripts.remove);
    await this.#removeOthers();
  }

  #poke(): void {
    if (this.#work !== null || this.#stop.signal.aborted) return;
    this.#work = this.#run().finally(() => {
      this.#work = null;
      if (this.#written?.version !== this.#version) this.#poke();
    });
    this.#deps.supervise(this.#work);
  }

  async #run(): Promise<void> {
    const { clock, log } = this.#deps;
    const backoff = new Backoff(RETRY);
    const { signal } = this.#stop;
    while (!signal.aborted) {
      try {
        await this.#check();
        this.#problem = null;
        return;
      } catch (error) {
        if (!(error instanceof MeshError)) throw error;
        if (this.#problem !== error.message) {
          log.error({ reason: error.message }, 'host.probe-rules-not-written');
        }
        this.#problem = error.message;
        await pause(clock, backoff.next(), signal);
      }
    }
  }

  async #check(): Promise<void> {
    const { chosen, log, probeAddress } = this.#deps;
    const { scripts } = chosen;
    const version = this.#version;
    if (this.#written?.version === version) {
      if ((await this.#script(scripts.list)) === this.#written.listed) return;
      log.warn({ rules: scripts.name }, 'host.probe-rules-repaired');
    }
    const addresses = new Map(
      [...this.#pods].flatMap(([uid, own]) => own.map((address) => [address, uid] as const)),
    );
    await this.#script(scripts.write(addresses, probeAddress));
    const listed = await this.#script(scripts.list);
    // Another program may change the rules between the two commands; its rules must not count as the agent's.
    if (!scripts.holds(listed, addresses)) {
      throw new MeshError('NETNS_RULES', `${scripts.name} was changed while it was written`);
    }
    if (this.#written === null) await this.#removeOthers();
    this.#written = { version, listed };
  }

  async #removeOthers(): Promise<void> {
    for (const { remove } of this.#deps.chosen.others) await this.#script(remove);
  }

  #script(script: string): Promise<string> {
    return runScript(`set -e\n${script}`, { enter: ['nsenter', `--net=${this.#deps.netns}`] });
  }
}
