/** The node agent as an actor: reads pods, writes rules, and sends ZDS messages. Its stop undoes nothing. */
import { mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Actor, ActorContext, ActorDefinition } from '../../lib/actor/actor.ts';
import { sendJson } from '../../lib/http/answers.ts';
import type { Bus } from '../../lib/bus/redis-bus.ts';
import { connectBus } from '../../lib/bus/redis-bus.ts';
import { present } from '../../lib/errors/assert.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { threadNetns } from '../../lib/linux/netns.ts';
import { capabilities, raiseFileLimit } from '../../lib/linux/process.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { Redirector } from '../../lib/redirect/apply.ts';
import { chooseTools } from '../../lib/redirect/flavour.ts';
import { ZdsAgent } from '../../lib/zds/agent.ts';
import { nodeAgentConfig } from './config.ts';
import type { NodeAgentConfig } from './config.ts';
import { EnrolmentRows } from './enrolment-rows.ts';
import { MAX_RULE_WRITERS } from './limits.ts';
import { agentMetrics } from './metrics.ts';
import { NodeEnrolments } from './node-enrolments.ts';
import { PodDirectory } from './pod-directory.ts';
import { RuleSets } from './rule-sets.ts';
import { Slots } from '../../lib/async/slots.ts';

/** Socket files are for the node's own processes, which run under one uid. */
const SOCKET_MODE = 0o600;

/** Enrols the pods of its node. */
export class NodeAgentActor implements Actor {
  readonly #config: NodeAgentConfig;
  readonly #made = new AsyncDisposableStack();

  constructor(config: NodeAgentConfig) {
    this.#config = config;
  }

  async start(context: ActorContext): Promise<void> {
    const config = this.#config;
    const { clock, log } = context;
    const node = present(context.node, 'the host gives a node actor its node');
    checkRights();
    await mkdir(dirname(config.socketPath), { recursive: true });
    const redirector = await openRedirector(config, log);
    const release = context.readiness.block('pods');
    const bus = this.#openBus(context, node);
    const rows = this.#openRows(context, bus, node);
    const metrics = agentMetrics(context.metrics, {
      states: () => pods.states(),
      proxies: () => zds.connections.length,
      zds: () => zds.counters,
    });
    const zds = new ZdsAgent({
      path: config.socketPath,
      mode: SOCKET_MODE,
      addTo: config.addTo,
      clock,
      log,
      snapshot: () => pods.snapshot(),
      onProxies: () => queueMicrotask(() => pods.proxiesChanged()),
    });
    const pods = new NodeEnrolments({
      zds,
      rows,
      redirector,
      slots: new Slots(() => MAX_RULE_WRITERS, clock),
      clock,
      log,
      metrics,
      ruleSets: new RuleSets(config.redirect),
      sysctlDir: config.sysctlDir,
      excludedNamespaces: config.excludedNamespaces,
      ownNetns: threadNetns(),
      drainMs: config.drainMs,
      supervise: (work) => context.supervise('pods', work),
    });
    this.#made.defer(() => pods.stop());
    this.#made.defer(() => zds.close());
    this.#declareRoutes(context, { bus, zds, pods, rows });
    const source = new PodDirectory({
      path: config.podsDir,
      node,
      rescanMs: config.rescanMs,
      clock,
      log,
      onProblem: (kind) => metrics.sourceProblem(kind),
      supervise: (work) => context.supervise('pod directory', work),
    });
    this.#made.defer(() => source.close());
    let begun = false;
    await source.start((set) => {
      rows.keep(set.unreadable);
      const attempted = pods.update(set);
      if (begun) return;
      begun = true;
      // A proxy that connects from here on hears of every pod; it keeps those that were not looked at yet.
      zds.start();
      pods.watch(config.driftIntervalMs);
      context.supervise(
        'first look at the pods',
        attempted.then(() => {
          rows.begin();
          release();
        }),
      );
    });
  }

  async drain(): Promise<void> {
    // Nothing to finish: the next agent continues unfinished work.
  }

  stop(): Promise<void> {
    return this.#made.disposeAsync();
  }

  #openBus(context: ActorContext, node: string): Bus {
    const { clock, log } = context;
    const bus = connectBus(this.#config.bus, {
      log,
      clock,
      metrics: context.metrics,
      name: `node-agent.${node}`,
      supervise: (name, work) => context.supervise(name, work),
    });
    this.#made.defer(() => bus.close());
    return bus;
  }

  #openRows({ clock, log, supervise }: ActorContext, bus: Bus, node: string): EnrolmentRows {
    const lease = bus.lease('agent', { node });
    const writer = bus.writer('enrolments', { node }, lease);
    const rows = new EnrolmentRows({ bus, lease, writer, clock, log });
    this.#made.defer(() => rows.close());
    supervise('enrolments table', rows.finished);
    return rows;
  }

  #declareRoutes(
    context: ActorContext,
    {
      bus,
      zds,
      pods,
      rows,
    }: { bus: Bus; zds: ZdsAgent; pods: NodeEnrolments; rows: EnrolmentRows },
  ): void {
    context.admin.route('GET', '/enrolments', (_request, response) => {
      sendJson(response, 200, pods.view());
    });
    context.admin.route('GET', '/status', (_request, response) => {
      sendJson(response, 200, {
        proxies: zds.connections,
        pods: Object.fromEntries(pods.states()),
        redis: { connected: bus.connected, written: rows.idle },
      });
    });
  }
}

async function openRedirector(config: NodeAgentConfig, log: Logger): Promise<Redirector> {
  const lockDir = dirname(config.socketPath);
  const { noZones, ...tools } = await chooseTools({
    ipv6: config.redirect.ipv6,
    force: config.forceIptables,
    lockDir,
  });
  log.info({ ...tools, files: raiseFileLimit().soft }, 'agent.tools');
  if (noZones !== null) log.warn({ flavour: tools.flavour, reason: noZones }, 'agent.no-zones');
  return new Redirector(tools, lockDir);
}

function checkRights(): void {
  const { netAdmin, sysAdmin } = capabilities();
  const missing = [...(netAdmin ? [] : ['CAP_NET_ADMIN']), ...(sysAdmin ? [] : ['CAP_SYS_ADMIN'])];
  if (missing.length > 0) {
    throw new MeshError(
      'CONFIG_UNSUPPORTED',
      `the node agent enters the namespaces of pods and needs ${missing.join(' and ')}`,
    );
  }
}

/** Describes the node agent to its host. */
export const definition: ActorDefinition<NodeAgentConfig> = {
  name: 'node-agent',
  perNode: true,
  config: nodeAgentConfig,
  create: (config) => new NodeAgentActor(config),
};
