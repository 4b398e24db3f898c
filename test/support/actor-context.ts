/** Hosts one actor inside a test: what the runner would give it, with its log kept. */
import type { ExecutionContext } from 'ava';
import type { Actor, ActorContext } from '../../lib/actor/actor.ts';
import type { HttpHandler } from '../../lib/http/routes.ts';
import { ReadinessGate } from '../../lib/actor/readiness.ts';
import { systemClock } from '../../lib/clock/clock.ts';
import type { Clock } from '../../lib/clock/clock.ts';
import { createLogger } from '../../lib/log/logger.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { MetricRegistry } from '../../lib/metrics/registry.ts';

/** A log line. */
export type LogLine = Readonly<Record<string, unknown>> & { readonly message: string };

/** A logger that keeps its lines. */
export function keptLog(actor: string): { readonly log: Logger; readonly lines: LogLine[] } {
  const lines: LogLine[] = [];
  const log = createLogger(
    { actor, level: 'debug' },
    { write: (text) => lines.push(JSON.parse(text) as LogLine) },
  );
  return { log, lines };
}

/** Ends what a test starts; a program that is no test gives its own. */
export type TeardownOwner = Pick<ExecutionContext, 'teardown'>;

/** An actor that runs in the test. */
export interface TestActor {
  readonly context: ActorContext;
  readonly lines: LogLine[];
  /** `METHOD path` → handler. */
  readonly routes: ReadonlyMap<string, HttpHandler>;
  /** Background work that failed. */
  readonly failures: unknown[];
  metrics(): Promise<string>;
  stop(): Promise<void>;
}

/** A context for an actor that is started by the test. */
export function actorContext(
  name: string,
  node: string | null,
  clock: Clock = systemClock,
): Omit<TestActor, 'stop'> {
  const { log, lines } = keptLog(name);
  const metrics = new MetricRegistry();
  const routes = new Map<string, HttpHandler>();
  const failures: unknown[] = [];
  const context: ActorContext = {
    actor: name,
    node,
    sharesProcess: false,
    log,
    clock,
    metrics,
    readiness: new ReadinessGate(),
    admin: { route: (method, path, handler) => routes.set(`${method} ${path}`, handler) },
    debug: { route: (method, path, handler) => routes.set(`${method} /debug${path}`, handler) },
    supervise: (_what, work) => void work.catch((error: unknown) => failures.push(error)),
    requestShutdown: () => undefined,
    onMemoryRelease: () => undefined,
  };
  return { context, lines, routes, failures, metrics: () => metrics.render() };
}

/** Starts the actor; it is stopped with the test, or before by `stop`. */
export async function startActor(
  t: TeardownOwner,
  actor: Actor,
  name: string,
  node: string | null = null,
): Promise<TestActor> {
  const hosted = actorContext(name, node);
  let stopped = false;
  const stop = async (): Promise<void> => {
    if (stopped) return;
    stopped = true;
    await actor.stop('drained');
    await actor.stop('drained');
    if (hosted.failures.length > 0)
      throw new AggregateError(hosted.failures, 'background work failed');
  };
  t.teardown(stop);
  await actor.start(hosted.context);
  return { ...hosted, stop };
}
