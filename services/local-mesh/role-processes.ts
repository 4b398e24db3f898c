/** The processes that play one role: how many there are, which generation, and how they are replaced. */
import type { Clock } from '../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { ManagedProcess } from './managed-process.ts';
import type { ProcessSpec, ProcessStatus } from './managed-process.ts';
import { parseRole } from './roles.ts';
import type { Role } from './roles.ts';
import type { MeshPlan } from './topology.ts';

/** Identifies one of all processes that a role ever had. */
export interface Instance {
  /** Grows with each upgrade. */
  readonly generation: number;
  /** Grows with each process. */
  readonly number: number;
}

/** Dependencies and settings of a role's processes. */
export interface RoleProcessesOptions {
  readonly name: string;
  readonly node: string | null;
  readonly count: number;
  /**
   * `beside`: the new process serves before the old one is told to end. `after`: the old one ends first, because both
   * need the same address or files.
   */
  readonly replacement: 'beside' | 'after';
  /** How long a replaced process may drain; null for as long as it has connections. */
  readonly drainDeadlineMs: number | null;
  spec(instance: Instance): ProcessSpec;
  /** Called when a process of this specification begins to answer for the role. */
  publish(spec: ProcessSpec): Promise<void>;
}

/** The result of an upgrade. */
export interface Upgraded {
  readonly role: string;
  readonly generation: number;
  readonly pids: readonly number[];
  /** Processes that still drain. */
  readonly draining: readonly number[];
  /** How long those may drain; null for as long as they have connections. */
  readonly drainDeadlineMs: number | null;
}

/** Replaces one role after another, so that at most one role at a time is between two processes. Throws for an unknown name. */
export async function upgradeInTurn(
  names: readonly string[],
  plan: MeshPlan,
  upgrade: (role: Role) => Promise<Upgraded>,
): Promise<readonly Upgraded[]> {
  const roles = names.map((name) => parseRole(name, plan));
  const done: Upgraded[] = [];
  for (const role of roles) done.push(await upgrade(role));
  return done;
}

const POLL_MS = 50;
/** A new process that has ended this often counts as failed. */
const MAX_RESTARTS = 5;

/** Keeps the processes of one role running. */
export class RoleProcesses {
  readonly #options: RoleProcessesOptions;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #leaving = new Set<ManagedProcess>();
  #members: readonly ManagedProcess[] = [];
  #generation = 1;
  #number = 0;
  #upgrading = false;
  #stopped = false;

  constructor(
    options: RoleProcessesOptions,
    deps: { readonly clock: Clock; readonly log: Logger },
  ) {
    this.#options = options;
    this.#clock = deps.clock;
    this.#log = deps.log;
  }

  /** `<node>/<name>` or `<name>`. */
  get role(): string {
    const { name, node } = this.#options;
    return node === null ? name : `${node}/${name}`;
  }

  get node(): string | null {
    return this.#options.node;
  }

  get name(): string {
    return this.#options.name;
  }

  /** The current members, which serve or are about to. */
  get members(): readonly ManagedProcess[] {
    return this.#members;
  }

  /** Starts the first generation. */
  async start(): Promise<void> {
    this.#members = Array.from({ length: this.#options.count }, () => this.#make());
    await this.#publish();
    await Promise.all(this.#members.map((process) => process.start()));
  }

  /** Asks each member for its state, and starts a successor for any that was told to end. */
  async refresh(): Promise<void> {
    // Leaving processes are not asked: they drain until they have ended.
    await Promise.all(this.#members.map((process) => process.refresh()));
    if (this.#options.replacement === 'after' || this.#stopped) return;
    for (const process of this.#members) {
      if (process.status().state === 'draining') await this.#substitute(process);
    }
  }

  /** Status of the members, then of the draining processes. */
  status(): readonly ProcessStatus[] {
    return [
      ...this.#members.map((process) => process.status()),
      ...[...this.#leaving].map((process) => ({
        ...process.status(),
        state: 'draining' as const,
        pending: [],
        retiring: true,
      })),
    ];
  }

  /**
   * Replaces all members by a new generation. Rejects with STATE_CONFLICT while another upgrade runs, and with
   * ACTOR_DEADLINE when the new generation is not ready in time; the old one then continues.
   */
  async upgrade(timeoutMs: number): Promise<Upgraded> {
    if (this.#upgrading || this.#stopped) {
      throw new MeshError('STATE_CONFLICT', `${this.role} is being replaced or stopped already`);
    }
    this.#upgrading = true;
    try {
      if (this.#options.replacement === 'beside') await this.#replaceBeside(timeoutMs);
      else await this.#replaceAfter(timeoutMs);
    } finally {
      this.#upgrading = false;
    }
    return {
      role: this.role,
      generation: this.#generation,
      pids: pidsOf(this.#members),
      draining: pidsOf([...this.#leaving]),
      drainDeadlineMs: this.#options.drainDeadlineMs,
    };
  }

  /** Ends all processes for good. Idempotent. */
  async stop(graceMs: number): Promise<void> {
    this.#stopped = true;
    const all = [...this.#members, ...this.#leaving];
    await Promise.all(all.map((process) => process.stop(graceMs)));
  }

  async #replaceBeside(timeoutMs: number): Promise<void> {
    this.#generation += 1;
    const next = Array.from({ length: this.#options.count }, () => this.#make());
    try {
      await Promise.all(next.map((process) => process.start()));
      await this.#untilReady(next, timeoutMs);
    } catch (error) {
      this.#log.error({ role: this.role, error: errorText(error) }, 'upgrade.given-up');
      await Promise.all(next.map((process) => process.stop(timeoutMs)));
      throw error;
    }
    const old = this.#members;
    this.#members = next;
    await this.#publish();
    await Promise.all(old.map((process) => this.#retire(process)));
  }

  async #replaceAfter(timeoutMs: number): Promise<void> {
    this.#generation += 1;
    const old = this.#members;
    const next = old.map(() => this.#make());
    await Promise.all(old.map((process) => process.stop(timeoutMs, timeoutMs)));
    this.#members = next;
    if (this.#stopped) return;
    await Promise.all(next.map((process) => process.start()));
    await this.#untilReady(next, timeoutMs);
  }

  /** Starts a successor for a process that was told to end and waits for one. */
  async #substitute(old: ManagedProcess): Promise<void> {
    this.#log.info({ role: this.role, pid: old.pid }, 'process.substituted');
    const next = this.#make();
    this.#members = this.#members.map((process) => (process === old ? next : process));
    this.#leave(old);
    await next.start();
    await this.#publish();
  }

  async #retire(process: ManagedProcess): Promise<void> {
    this.#leave(process);
    await process.retire({ unbounded: this.#options.drainDeadlineMs === null });
  }

  #leave(process: ManagedProcess): void {
    this.#leaving.add(process);
    void process.left().then(() => this.#leaving.delete(process));
  }

  #untilReady(processes: readonly ManagedProcess[], timeoutMs: number): Promise<void> {
    return untilReady({ clock: this.#clock, role: this.role, timeoutMs }, async () => {
      await Promise.all(processes.map((process) => process.refresh()));
      return {
        statuses: processes.map((process) => process.status()),
        hopeless: this.#stopped || processes.some(({ misconfigured }) => misconfigured),
      };
    });
  }

  async #publish(): Promise<void> {
    const [first] = this.#members;
    if (first !== undefined) await this.#options.publish(first.spec);
  }

  #make(): ManagedProcess {
    this.#number += 1;
    const instance = { generation: this.#generation, number: this.#number };
    const deps = { clock: this.#clock, log: this.#log };
    return new ManagedProcess(this.#options.spec(instance), deps);
  }
}

function pidsOf(processes: readonly ManagedProcess[]): number[] {
  return processes.flatMap(({ pid }) => (pid === null ? [] : [pid]));
}

/** Polls the new processes of a role until all are ready. Throws ACTOR_DEADLINE when they are not ready in time. */
export async function untilReady(
  { clock, role, timeoutMs }: { clock: Clock; role: string; timeoutMs: number },
  look: () => Promise<{ statuses: readonly ProcessStatus[]; hopeless: boolean }>,
): Promise<void> {
  const end = clock.monotonic() + timeoutMs;
  for (;;) {
    const { statuses, hopeless } = await look();
    const late = statuses.find(({ state, pending }) => state !== 'ready' || pending.length > 0);
    if (late === undefined) return;
    const ends = statuses.some(({ restarts }) => restarts >= MAX_RESTARTS);
    if (hopeless || ends || clock.monotonic() > end) {
      const why = [late.state, ...late.pending].join(', ');
      throw new MeshError('ACTOR_DEADLINE', `the new ${role} is not ready: ${why}`);
    }
    await clock.sleep(POLL_MS);
  }
}
