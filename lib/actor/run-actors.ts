import { systemClock } from '../clock/clock.ts';
import type { Clock } from '../clock/clock.ts';
import { configInvalid } from '../config/define-config.ts';
import type { Environment } from '../config/env.ts';
import { retiredVariables, unknownVariables } from '../config/unknown-variables.ts';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import { sourceStack } from '../errors/source-stack.ts';
import { createLogger } from '../log/logger.ts';
import type { Logger } from '../log/logger.ts';
import { MetricRegistry } from '../metrics/registry.ts';
import type { OtlpExport } from '../otlp/otlp-export.ts';
import type { ActorDefinition } from './actor.ts';
import { sendJson, sendText } from '../http/answers.ts';
import { HttpServer } from '../http/http-server.ts';
import { RouteTable } from '../http/routes.ts';
import type { HttpHandler } from '../http/routes.ts';
import { DrainDeadline } from './drain.ts';
import { hostConfig } from './host-config.ts';
import type { HostConfig } from './host-config.ts';
import { IdleMemory } from './idle-memory.ts';
import { MetricsListener } from './metrics-listener.ts';
import { HostedActor } from './hosted-actor.ts';

/** The event loop must be empty this long after everything was stopped; otherwise the leftovers are logged and the process ends. */
const LEFTOVER_TIMEOUT_MS = 3_000;

/** Exit codes of an actor process. */
export const EXIT_OK = 0;
/** An actor failed. */
export const EXIT_FAILED = 1;
/** The configuration is wrong (EX_CONFIG of sysexits.h). */
export const EXIT_CONFIG = 78;

/** An actor with the configuration it was given. */
interface Configured {
  readonly definition: ActorDefinition<unknown>;
  readonly config: unknown;
}

/** The configuration of a whole process. */
export interface ProcessConfig {
  readonly host: HostConfig;
  readonly actors: readonly Configured[];
}

/**
 * Reads the configuration of the host and of every actor. Throws one CONFIG_INVALID with all problems, which include unknown
 * `WEFT_*` variables and a node actor without NODE_NAME.
 */
export function configureActors(
  definitions: readonly ActorDefinition<unknown>[],
  environment: Environment,
): ProcessConfig {
  const problems: string[] = [];
  const attempt = <T>(parse: () => T): T | null => {
    try {
      return parse();
    } catch (error) {
      if (!(error instanceof MeshError)) throw error;
      problems.push(error.message.replace(/^invalid configuration: /, ''));
      return null;
    }
  };
  const host = attempt(() => hostConfig.parse(environment));
  const actors = definitions.map((definition) => ({
    definition,
    config: attempt(() => definition.config.parse(environment)),
  }));
  const known = [hostConfig, ...definitions.map((definition) => definition.config)].flatMap(
    (spec) => Object.keys(spec.variables),
  );
  problems.push(...unknownVariables(environment, known));
  const homeless = definitions.filter((definition) => definition.perNode);
  if (host !== null && host.node === null && homeless.length > 0) {
    problems.push(`NODE_NAME is required by ${homeless.map((actor) => actor.name).join(', ')}`);
  }
  if (problems.length > 0 || host === null) throw configInvalid([...new Set(problems)]);
  return { host, actors };
}

/**
 * Hosts actors in this process until a signal or a failure stops them. Only this function installs signal handlers: SIGTERM and
 * SIGINT drain, a second SIGINT forces the end. Resolves with the exit code when everything has stopped. Rejects with
 * CONFIG_INVALID before anything starts.
 */
export async function runActors(
  definitions: readonly ActorDefinition<unknown>[],
  environment: Environment,
  clock: Clock = systemClock,
): Promise<number> {
  const config = configureActors(definitions, environment);
  const names = definitions.map((definition) => definition.name);
  const log = createLogger({
    actor: names.length === 1 ? (names[0] ?? 'host') : 'host',
    node: config.host.node,
    level: config.host.logLevel,
    format: config.host.logFormat,
  });
  const retired = retiredVariables(environment);
  if (retired.length > 0) log.warn({ variables: retired }, 'config.retired-settings-ignored');
  const exports = await startExport(config.host, names, log, clock);
  const host = new ActorHost(config, log, clock, exports);
  return host.run();
}

/** Loads the libraries of OTLP, which take megabytes and time, only where an endpoint is set. */
async function startExport(
  { otlp, node }: HostConfig,
  actors: readonly string[],
  log: Logger,
  clock: Clock,
): Promise<OtlpExport | null> {
  if (otlp === null) return null;
  const { OtlpExport: loaded } = await import('../otlp/otlp-export.ts');
  const service = actors.length === 1 ? `weft-${actors[0]}` : 'weft';
  return loaded.start(otlp, { clock, log, service, node });
}

/** The process around the actors. */
class ActorHost {
  readonly #config: ProcessConfig;
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #adminRoutes = new RouteTable();
  readonly #metricsRoutes = new RouteTable();
  readonly #admin: HttpServer;
  readonly #metrics: MetricsListener | null;
  readonly #actors: readonly HostedActor[];
  /** Null where telemetry is not exported. */
  readonly #exports: OtlpExport | null;
  readonly #memory: IdleMemory;
  readonly #processMetrics = new MetricRegistry();
  readonly #end = Promise.withResolvers<void>();
  #deadline: DrainDeadline | null = null;
  #failed = false;
  #ending = false;

  constructor(config: ProcessConfig, log: Logger, clock: Clock, exports: OtlpExport | null) {
    this.#config = config;
    this.#log = log;
    this.#clock = clock;
    this.#exports = exports;
    this.#admin = new HttpServer(this.#adminRoutes.handle, { name: 'admin', log });
    this.#memory = new IdleMemory({ clock, log });
    this.#processMetrics.collectProcessMetrics();
    const { metrics } = config.host;
    this.#metricsRoutes.route('GET', '/metrics', this.#serveMetrics);
    this.#metricsRoutes.route('GET', '/healthz/ready', this.#serveReadiness);
    this.#metrics =
      metrics === null ? null : new MetricsListener(metrics, this.#metricsRoutes, { clock, log });
    this.#actors = config.actors.map(
      ({ definition, config: actorConfig }) =>
        new HostedActor(definition, actorConfig, {
          node: config.host.node,
          sharesProcess: config.actors.length > 1,
          clock,
          logLevel: config.host.logLevel,
          logFormat: config.host.logFormat,
          adminRoutes: this.#adminRoutes,
          debugRoutes: this.#metricsRoutes,
          exports,
          ready: () => this.#onActorReady(),
          fail: (actor, error) => this.#fail(actor, error),
          requestShutdown: (why) => this.#shutdown(why),
          onMemoryRelease: (listener) => this.#memory.onRelease(listener),
        }),
    );
    exports?.addMetrics('process', () => this.#processMetrics.families());
    for (const { name, metrics: own } of this.#actors)
      exports?.addMetrics(name, () => own.families());
  }

  async run(): Promise<number> {
    const release = this.#handleSignals();
    this.#registerRoutes();
    try {
      if (this.#config.host.admin !== null) await this.#admin.listen(this.#config.host.admin);
      await this.#metrics?.listen();
      for (const actor of this.#actors) {
        if (this.#ending) break;
        await actor.start();
      }
      this.#memory.started();
      await this.#end.promise;
    } catch (error) {
      this.#log.fatal({ error: errorText(error), stack: sourceStack(error) }, 'host.start-failed');
      this.#failed = true;
    }
    this.#memory.cancel();
    await this.#stopAll();
    await this.#admin.close();
    await this.#metrics?.close();
    const exported = (await this.#exports?.close()) ?? true;
    release();
    const code = this.#failed ? EXIT_FAILED : EXIT_OK;
    // A request to a collector cannot be cancelled, and nothing waits for its answer any more.
    if (exported) this.#watchLeftovers();
    else setImmediate(() => process.exit(code));
    return code;
  }

  #onActorReady(): void {
    if (this.#actors.every(({ state }) => state === 'ready')) this.#memory.ready();
  }

  async #stopAll(): Promise<void> {
    const deadline =
      this.#deadline ?? new DrainDeadline(this.#clock, this.#config.host.drainDeadlineMs);
    this.#deadline = deadline;
    if (!this.#failed) await Promise.all(this.#actors.map((actor) => actor.drain(deadline)));
    await this.#exports?.lastMetrics();
    const reason = this.#failed ? 'failed' : deadline.signal.aborted ? 'deadline' : 'drained';
    for (const actor of [...this.#actors].reverse()) {
      try {
        await actor.stop(reason);
      } catch (error) {
        actor.log.error({ error: errorText(error) }, 'actor.stop-failed');
        this.#failed = true;
      }
    }
    deadline.release();
  }

  #fail(actor: string, error: unknown): void {
    this.#failed = true;
    this.#actors.find((candidate) => candidate.name === actor)?.markFailed();
    this.#shutdown(`${actor} failed: ${errorText(error)}`);
  }

  #shutdown(why: string, drainMs = this.#config.host.drainDeadlineMs): void {
    if (this.#ending) return;
    this.#ending = true;
    this.#log.info({ why }, 'host.stopping');
    this.#deadline = new DrainDeadline(this.#clock, drainMs);
    this.#end.resolve();
  }

  #handleSignals(): () => void {
    const terminate = (signal: NodeJS.Signals): void => {
      if (this.#ending && signal === 'SIGINT') this.#deadline?.force('second SIGINT');
      this.#shutdown(signal);
    };
    const crash = (error: unknown): void => {
      this.#log.fatal({ error: errorText(error), stack: sourceStack(error) }, 'host.uncaught');
      if (this.#failed && this.#ending) process.exit(EXIT_FAILED);
      this.#failed = true;
      this.#shutdown('uncaught error');
    };
    process.on('SIGTERM', terminate);
    process.on('SIGINT', terminate);
    process.on('uncaughtException', crash);
    process.on('unhandledRejection', crash);
    return () => {
      process.off('SIGTERM', terminate);
      process.off('SIGINT', terminate);
      process.off('uncaughtException', crash);
      process.off('unhandledRejection', crash);
    };
  }

  #registerRoutes(): void {
    const routes = this.#adminRoutes;
    routes.route('GET', '/status', (_request, response) =>
      sendJson(response, 200, { actors: this.#actors.map((actor) => actor.status()) }),
    );
    routes.route('GET', '/healthz/ready', this.#serveReadiness);
    routes.route('GET', '/metrics', this.#serveMetrics);
    // `?deadline=none` is for a process that another one has replaced: it drains for as long as its work lasts.
    routes.route('POST', '/quitquitquit', (_request, response, { searchParams }) => {
      const deadline = searchParams.get('deadline');
      if (deadline !== null && deadline !== 'none') {
        sendText(response, 400, `deadline: must be none, got ${JSON.stringify(deadline)}\n`);
        return;
      }
      sendText(response, 200, 'shutdown now\n');
      this.#shutdown('quitquitquit', deadline === 'none' ? Infinity : undefined);
    });
  }

  readonly #serveReadiness: HttpHandler = (_request, response) => {
    const names = [...new Set(this.#actors.flatMap((actor) => actor.pending()))].sort();
    if (names.length === 0) sendText(response, 200, 'ready\n');
    else sendText(response, 500, `not ready, pending: ${names.join(', ')}\n`);
  };

  readonly #serveMetrics: HttpHandler = async (_request, response) => {
    const registries = [
      this.#processMetrics,
      ...this.#actors.map((actor) => actor.metrics),
      ...(this.#exports === null ? [] : [this.#exports.metrics]),
    ];
    sendText(response, 200, await MetricRegistry.renderAll(registries));
  };

  /** Ends a process that something still keeps alive, and logs what that is. */
  #watchLeftovers(): void {
    setTimeout(() => {
      this.#log.error({ handles: process.getActiveResourcesInfo() }, 'host.leftover-handles');
      process.exit(EXIT_FAILED);
    }, LEFTOVER_TIMEOUT_MS).unref();
  }
}
