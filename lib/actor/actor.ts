import type { Clock } from '../clock/clock.ts';
import type { ConfigSpec } from '../config/spec.ts';
import type { Logger } from '../log/logger.ts';
import type { MetricRegistry } from '../metrics/registry.ts';
import type { TelemetryExport } from '../otlp/export-port.ts';
import type { Routes } from '../http/routes.ts';

/** The state of an actor; `failed` is reached from any state. */
export type ActorState = 'created' | 'starting' | 'ready' | 'draining' | 'stopped' | 'failed';

/** Why an actor stops. */
export type StopReason = 'drained' | 'deadline' | 'failed';

/** The time a drain may take. */
export interface Deadline {
  /** Milliseconds left, never negative. */
  remainingMs(): number;
  /** Aborted when the deadline passes or a second signal forces the end. */
  readonly signal: AbortSignal;
}

/** The blockers that keep an actor from being ready. */
export interface Readiness {
  /** Adds a blocker; call the result to release it (more than once is harmless). */
  block(name: string): () => void;
  /** Returns the names of the blockers that are left, sorted. */
  pending(): readonly string[];
  /** Calls `listener` with the pending names whenever they change; the result unsubscribes. */
  onChange(listener: (pending: readonly string[]) => void): () => void;
}

/** Everything that the host gives an actor. The actor owns none of it. */
export interface ActorContext {
  readonly actor: string;
  readonly node: string | null;
  /** True when the process hosts other actors too, and memory therefore counts for more. */
  readonly sharesProcess: boolean;
  readonly log: Logger;
  readonly clock: Clock;
  readonly metrics: MetricRegistry;
  /** The export of telemetry, where it is configured. The host exports `metrics` itself. */
  readonly exports?: TelemetryExport | null;
  readonly readiness: Readiness;
  /** Routes on the process's admin server, below `/<actor>`. */
  readonly admin: Routes;
  /** Routes at the metrics address, below `/debug`. Anybody may call them, so their handlers decide whom they answer. */
  readonly debug: Routes;
  /** Watches background work: its rejection fails the actor. */
  supervise(name: string, work: Promise<unknown>): void;
  /** Asks the host to drain and stop the process, as `/quitquitquit` does. */
  requestShutdown(why: string): void;
  /**
   * Calls `listener` each time the idle process returns memory. The actor's threads may then collect their own garbage
   * (lib/actor/collector.ts).
   */
  onMemoryRelease(listener: () => void): void;
}

/**
 * One role of the mesh. Crash-only: SIGKILL at any moment loses no accepted work.
 * The host calls `start` once, then `drain` and `stop`; `stop` may follow a failed `start`.
 */
export interface Actor {
  /** Resolves when it listens or is subscribed; readiness comes later through the context. */
  start(context: ActorContext): Promise<void>;
  /** Takes nothing new and finishes what is in hand, at most until the deadline. */
  drain(deadline: Deadline): Promise<void>;
  /** Releases everything. Idempotent. */
  stop(reason: StopReason): Promise<void>;
}

/** Describes an actor to the composition root; `<name>-actor.ts` exports it as `definition`. */
export interface ActorDefinition<Config> {
  readonly name: string;
  /** True when each node runs its own; such an actor needs `NODE_NAME`. */
  readonly perNode: boolean;
  /** Turns the environment into a frozen, clonable configuration; throws CONFIG_INVALID naming every problem. */
  readonly config: ConfigSpec<Config>;
  create(config: Config): Actor;
}
