/** Keeps the node's rules for kubelet's probes equal to the enrolled pods. */
import { Backoff } from '../../../lib/clock/backoff.ts';
import { pause } from '../../../lib/clock/clock.ts';
import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { closeFd, nftGeneration, openNetns, rulesDigest } from '../../../lib/linux/netns.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import type { ChosenHostProbes } from '../../../lib/redirect/choose-host-probes.ts';
import type { HostProbeScripts } from '../../../lib/redirect/host-probes.ts';
import { runScript } from '../../../lib/redirect/run-script.ts';
import type { RedirectOptions } from '../../../lib/redirect/rules.ts';
import { IstioRemains } from './istio-remains.ts';
import { HOST_RULES_CHECK_MS, HOST_RULES_LOOK_MS, RETRY } from '../limits.ts';

/** A value that differs once the namespace's rules do; null when they could not be read. */
type Mark = string | number | null;

/** Collaborators of {@link ProbeRules}. */
export interface ProbeRulesDeps {
  /** File of the node's network namespace. */
  readonly netns: string;
  /** A mount of the node's `/proc`. */
  readonly procDir: string;
  readonly probeAddress: RedirectOptions['probeAddress'];
  readonly chosen: ChosenHostProbes;
  readonly clock: Clock;
  readonly log: Logger;
  /** Fails the actor when the promise rejects, which is a defect. */
  readonly supervise: (work: Promise<void>) => void;
}

/**
 * Writes all addresses whenever they change. Reads the rules back once a minute, and soon after any rule of the node's namespace
 * changed, which it notices without a process.
 */
export class ProbeRules {
  readonly #deps: ProbeRulesDeps;
  /** Addresses by the uid of their pod. A later pod may have the address of an earlier one that is not gone yet. */
  readonly #pods = new Map<string, readonly string[]>();
  readonly #stop = new AbortController();
  /** Counts the changes of {@link #pods}. */
  #version = 0;
  /** The version last written, and the rules as listed afterwards. The mark is of a moment before they were last found so. */
  #written: { readonly version: number; readonly listed: string; readonly mark: Mark } | null =
    null;
  #work: Promise<void> | null = null;
  #timers: readonly Timer[] | null = null;
  #problem: string | null = null;
  /** The last look at whether rules changed failed, and that was said. */
  #saidBlind = false;
  readonly #istio: IstioRemains;

  constructor(deps: ProbeRulesDeps) {
    this.#deps = deps;
    this.#istio = new IstioRemains({ ...deps, script: (script) => this.#script(script) });
  }

  /** Why the rules could not be written or read; null when they are in force. */
  get problem(): string | null {
    return this.#problem;
  }

  /** Begins: call it when every pod was looked at once, so that a restart removes nobody's rule. */
  start(): void {
    const { clock, chosen } = this.#deps;
    this.#timers = [
      clock.every(HOST_RULES_CHECK_MS, () => this.#poke()),
      clock.every(HOST_RULES_LOOK_MS[chosen.scripts.changes], () => this.#look()),
    ];
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
    if (this.#timers !== null) this.#poke();
  }

  /** Stops; the rules stay. */
  async close(): Promise<void> {
    for (const timer of this.#timers ?? []) timer.cancel();
    this.#stop.abort(new Error('the agent stops'));
    await this.#work;
  }

  /**
   * Removes the rules, also those of an agent that wrote them another way. Those of an istio-cni stay: one may run again. Rejects
   * with NETNS_RULES when that fails.
   */
  async remove(): Promise<void> {
    await this.#script(this.#deps.chosen.scripts.remove);
    await this.#removeOthers();
  }

  #look(): void {
    if (this.#work === null && this.#mark() !== this.#written?.mark) this.#poke();
  }

  /** Without a mark the read of each minute remains, and no rule is taken for missing. */
  #mark(): Mark {
    const { chosen, log, netns } = this.#deps;
    try {
      const mark = markOf(netns, chosen.scripts.changes);
      this.#saidBlind = false;
      return mark;
    } catch (error) {
      if (!(error instanceof MeshError)) throw error;
      if (!this.#saidBlind) log.warn({ reason: error.message }, 'host.rules-not-watched');
      this.#saidBlind = true;
      return null;
    }
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
        await this.#istio.clear();
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
      const { listed } = this.#written;
      // Taken before the rules are read: what changes them afterwards differs from it.
      const mark = this.#mark();
      if ((await this.#script(scripts.list)) === listed) {
        this.#written = { version, listed, mark };
        return;
      }
      log.warn({ rules: scripts.name }, 'host.probe-rules-repaired');
    }
    const addresses = new Map(
      [...this.#pods].flatMap(([uid, own]) => own.map((address) => [address, uid] as const)),
    );
    await this.#script(scripts.write(addresses, probeAddress));
    const mark = this.#mark();
    const listed = await this.#script(scripts.list);
    // Another program may change the rules between the two commands; its rules must not count as the agent's.
    if (!scripts.holds(listed, addresses)) {
      throw new MeshError('NETNS_RULES', `${scripts.name} was changed while it was written`);
    }
    if (this.#written === null) await this.#removeOthers();
    this.#written = { version, listed, mark };
  }

  async #removeOthers(): Promise<void> {
    for (const { remove } of this.#deps.chosen.others) await this.#script(remove);
  }

  #script(script: string): Promise<string> {
    return runScript(`set -e\n${script}`, { enter: ['nsenter', `--net=${this.#deps.netns}`] });
  }
}

/** Throws NATIVE_SYSCALL when the namespace or its rules cannot be read. */
function markOf(netns: string, changes: HostProbeScripts['changes']): Mark {
  const fd = openNetns(netns);
  try {
    return changes === 'generation' ? nftGeneration(fd) : rulesDigest(fd, true);
  } finally {
    closeFd(fd);
  }
}
