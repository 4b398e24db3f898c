import type { Actor, ActorContext, ActorDefinition, Deadline } from '../../lib/actor/actor.ts';
import { sendJson } from '../../lib/http/answers.ts';
import { EXPLAIN_BOARD, policyCompile, policyExplain } from '../../lib/bus/catalog.ts';
import type { Bus } from '../../lib/bus/redis-bus.ts';
import type { ResultBoard } from '../../lib/bus/result-board.ts';
import type { WorkConsumer } from '../../lib/bus/contract.ts';
import { exposeQueueDepths, routeQueues } from '../../lib/bus/queue-metrics.ts';
import { connectBus } from '../../lib/bus/redis-bus.ts';
import type { Timer } from '../../lib/clock/clock.ts';
import { assert } from '../../lib/errors/assert.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { explainResultSchema } from '../../lib/policy/explain.ts';
import type { ExplainRequest, ExplainResult } from '../../lib/policy/explain.ts';
import { explain } from '../../lib/state/explain.ts';
import { workOnCompileJob } from './compile-job.ts';
import { policyEvaluatorConfig } from './config.ts';
import type { PolicyEvaluatorConfig } from './config.ts';
import {
  COMPILE_CONCURRENCY,
  EXPLAIN_CONCURRENCY,
  EXPLAIN_LIFETIME_MS,
  RECONCILE_DELAY_MS,
  RECONCILE_INTERVAL_MS,
} from './limits.ts';
import { MeshMirror } from './mesh-mirror.ts';
import { declareReads } from './reads.ts';
import { createEvaluatorMetrics } from './metrics.ts';
import type { EvaluatorMetrics } from './metrics.ts';
import { ProgramTable } from './program-table.ts';
import { SetRegistry } from './set-registry.ts';

/** The actor that compiles policy sets and explains decisions. */
export const definition: ActorDefinition<PolicyEvaluatorConfig> = {
  name: 'policy-evaluator',
  perNode: false,
  config: policyEvaluatorConfig,
  create: (config) => new PolicyEvaluator(config),
};

/** The parts of a started evaluator. */
interface Parts {
  readonly context: ActorContext;
  readonly bus: Bus;
  readonly mirror: MeshMirror;
  readonly table: ProgramTable;
  readonly sets: SetRegistry;
  readonly metrics: EvaluatorMetrics;
  readonly answers: ResultBoard<ExplainResult>;
}

class PolicyEvaluator implements Actor {
  readonly #config: PolicyEvaluatorConfig;
  #parts: Parts | null = null;
  #consumers: readonly WorkConsumer[] = [];
  #timer: Timer | null = null;
  #running: Promise<void> | null = null;
  #again = false;
  #ending = false;
  readonly #made = new AsyncDisposableStack();

  constructor(config: PolicyEvaluatorConfig) {
    this.#config = config;
  }

  async start(context: ActorContext): Promise<void> {
    const { admin, clock, readiness } = context;
    const ready = readiness.block('mesh state');
    const parts = this.#assemble(context);
    this.#parts = parts;
    admin.route('GET', '/sets', (_request, response) => sendJson(response, 200, this.#describe()));
    declareReads(admin, { bus: parts.bus, explain: (request) => this.#explain(request) });
    const ticker = clock.every(RECONCILE_INTERVAL_MS, () => this.#poke());
    this.#made.defer(() => ticker.cancel());
    const started = parts.mirror.meshComplete.then(() => {
      if (this.#ending) return;
      this.#consume(parts);
      this.#poke();
      ready();
    });
    context.supervise('start of work', started);
  }

  /** Takes no new jobs and finishes those in hand. */
  async drain(_deadline: Deadline): Promise<void> {
    this.#ending = true;
    await Promise.all(this.#consumers.map((consumer) => consumer.drain()));
  }

  stop(): Promise<void> {
    this.#ending = true;
    this.#timer?.cancel();
    return this.#made.disposeAsync();
  }

  #assemble(context: ActorContext): Parts {
    const { clock, log, metrics: registry } = context;
    const { bus: busOptions, unknownReference } = this.#config;
    const bus = connectBus(busOptions, {
      log,
      clock,
      metrics: registry,
      name: 'policy-evaluator',
      supervise: context.supervise,
    });
    this.#made.defer(() => bus.close());
    this.#made.defer(async () => {
      await this.#running;
    });
    exposeQueueDepths(context.metrics, bus, ['mesh'], context.log);
    routeQueues(context.admin, bus, ['mesh']);
    const table = new ProgramTable(bus);
    const mirror: MeshMirror = new MeshMirror({
      bus,
      log,
      unknownReference,
      unreadable: (name) => metrics.unreadable(name),
      changed: () => this.#poke(),
    });
    this.#made.defer(() => mirror.close());
    const { policies, classes, programs } = mirror;
    const sets: SetRegistry = new SetRegistry({
      clock,
      policies,
      classes,
      programs,
      queue: bus.queue(policyCompile, 'mesh'),
      table,
      requested: () => metrics.requested(),
      dropped: (count) => metrics.dropped(count),
    });
    const metrics = createEvaluatorMetrics(registry, {
      policies: () => policies.size,
      rejected: () => policies.rejected().size,
      workloads: () => classes.workloads,
      sets: () => sets.used.size,
      waiting: () => sets.waiting,
      programs: () => programs.size,
      unknownReferences: () => sets.unknownReferences,
    });
    const answers = bus.results(EXPLAIN_BOARD, 'mesh', explainResultSchema);
    return { context, bus, mirror, table, sets, metrics, answers };
  }

  #consume({ bus, context, metrics, mirror, table }: Parts): void {
    const { clock, log } = context;
    const { policies, programs } = mirror;
    const deps = { clock, log, metrics, policies, programs, table };
    this.#consumers = [
      bus.consume(policyCompile, 'mesh', { concurrency: COMPILE_CONCURRENCY }, (body, attempt) =>
        workOnCompileJob(body, attempt, deps),
      ),
      bus.consume(policyExplain, 'mesh', { concurrency: EXPLAIN_CONCURRENCY }, (body, attempt) =>
        this.#answer(body, attempt.id),
      ),
    ];
    for (const consumer of this.#consumers) this.#made.defer(() => consumer.close());
  }

  async #answer(request: ExplainRequest, id: string): Promise<void> {
    const { answers } = this.#get();
    await answers.put(id, this.#explain(request), EXPLAIN_LIFETIME_MS);
  }

  #explain(request: ExplainRequest): ExplainResult {
    const { metrics, mirror } = this.#get();
    const { network, unknownReference, waypointBypass, sameNodeFastPath } = this.#config;
    const view = {
      get: mirror.mesh.lookup.bind(mirror.mesh),
      workloadsNamed: mirror.mesh.workloadsNamed.bind(mirror.mesh),
      servicesNamed: mirror.mesh.servicesNamed.bind(mirror.mesh),
    };
    const result = explain(view, mirror.policies, request, {
      network,
      unknownReference,
      waypointBypass,
      sameNodeFastPath,
    });
    metrics.explained(result.path === 'none' ? 'no-path' : result.allowed ? 'allowed' : 'denied');
    return result;
  }

  /** Schedules a look at the sets; several pokes are one look. */
  #poke(): void {
    if (this.#ending) return;
    if (this.#running !== null) {
      this.#again = true;
      return;
    }
    this.#timer ??= this.#get().context.clock.after(RECONCILE_DELAY_MS, () => {
      this.#timer = null;
      const { context } = this.#get();
      this.#running = this.#reconcile().finally(() => {
        this.#running = null;
        if (this.#again) this.#poke();
        this.#again = false;
      });
      context.supervise('reconcile', this.#running);
    });
  }

  async #reconcile(): Promise<void> {
    const { sets, bus, context, mirror, table } = this.#get();
    if (!bus.connected) return;
    try {
      if (await table.ensure()) context.log.info('policy.programs-table-made');
      // During a copy a row that is not read yet makes a set look unused or a program look missing.
      if (mirror.copying || !mirror.programsComplete) return;
      await sets.reconcile();
    } catch (error) {
      // Redis went away: the next look does the rest.
      if (!(error instanceof MeshError) || error.policy.retry !== 'backoff') throw error;
      context.log.warn({ code: error.code, error: error.message }, 'policy.reconcile-interrupted');
    }
  }

  #describe(): unknown {
    const { sets, mirror } = this.#get();
    const used = [...sets.used.values()].map(({ setId, keys, workloads }) => ({
      setId,
      policies: keys,
      workloads,
      state: mirror.programs.has(setId) ? 'compiled' : 'waiting',
    }));
    const unused = [...mirror.programs].filter((setId) => !sets.used.has(setId));
    return { sets: used, unused, unknownReferences: sets.unknownReferences };
  }

  #get(): Parts {
    assert(this.#parts !== null, 'the evaluator is started');
    return this.#parts;
  }
}
