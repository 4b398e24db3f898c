/** The node agent as an actor: reads pods, writes rules, and sends ZDS messages. Its stop undoes nothing. */
import { dirname, join } from 'node:path';
import type { Actor, ActorContext, ActorDefinition, Deadline } from '../../lib/actor/actor.ts';
import { sendJson } from '../../lib/http/answers.ts';
import type { Bus } from '../../lib/bus/redis-bus.ts';
import { connectBus } from '../../lib/bus/redis-bus.ts';
import { Sandboxes } from '../../lib/cri/sandboxes.ts';
import { assert, present } from '../../lib/errors/assert.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { capabilities, raiseFileLimit } from '../../lib/linux/process.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { Redirector } from '../../lib/redirect/apply.ts';
import { chooseHostProbes } from '../../lib/redirect/choose-host-probes.ts';
import { chooseTools } from '../../lib/redirect/flavour.ts';
import { chooseNative } from '../../lib/redirect/choose-native.ts';
import type { ChosenTools, RedirectTools } from '../../lib/redirect/flavour.ts';
import { ZdsAgent } from '../../lib/zds/agent.ts';
import { Cni } from './cni/cni.ts';
import { nodeAgentConfig } from './config.ts';
import type { NodeAgentConfig } from './config.ts';
import { EnrolmentRows } from './enrolment-rows.ts';
import { LEAVE_REST_MS, MAX_RULE_WRITERS } from './limits.ts';
import { Departing } from './kubernetes/departing.ts';
import { KubernetesParts } from './kubernetes/kubernetes-parts.ts';
import { agentMetrics } from './metrics.ts';
import type { AgentMetrics } from './metrics.ts';
import type { DockerPods } from './docker/docker-pods.ts';
import type { HeldContainerDeps } from './docker/held-containers.ts';
import { ownNamespaces } from './netns/own-namespaces.ts';
import { PodNamespaces } from './netns/pod-namespaces.ts';
import { NodeEnrolments } from './node-enrolments.ts';
import { PodDirectory } from './pod-directory.ts';
import type { PodSource } from './pod-source.ts';
import { proveNode } from './proof/node-proof.ts';
import type { ProofParts } from './proof/node-proof.ts';
import { RuleSets } from './rule-sets.ts';
import { keepSocketFolder } from './socket-folder.ts';
import { StartServer } from './start-server.ts';
import { Slots } from '../../lib/async/slots.ts';

/** Socket files are for the node's own processes, which run under one uid. */
const SOCKET_MODE = 0o600;

/** Enrols the pods of its node. */
export class NodeAgentActor implements Actor {
  readonly #config: NodeAgentConfig;
  readonly #made = new AsyncDisposableStack();
  #cni: Cni | null = null;
  #kubernetes: KubernetesParts | null = null;
  #docker: DockerPods | null = null;
  #pods: NodeEnrolments | null = null;
  #openDeparture: (() => Promise<Departing>) | null = null;

  constructor(config: NodeAgentConfig) {
    this.#config = config;
  }

  async start(context: ActorContext): Promise<void> {
    const config = this.#config;
    const { clock, log } = context;
    const node = present(context.node, 'the host gives a node actor its node');
    checkRights();
    await keepSocketFolder(config, log);
    const { noZones, ...tools } = await openTools(config, log);
    const redirector = new Redirector(tools, dirname(config.socketPath));
    const release = context.readiness.block('pods');
    const bus = this.#openBus(context, node);
    const rows = this.#openRows(context, bus, node);
    const kubernetes = await this.#openKubernetes(context, node, tools);
    this.#kubernetes = kubernetes;
    const metrics = agentMetrics(context.metrics, {
      states: () => pods.states(),
      exposures: () => pods.exposures(),
      proxies: () => zds.connections.length,
      zds: () => zds.counters,
    });
    const zds = new ZdsAgent({
      path: config.socketPath,
      mode: SOCKET_MODE,
      clock,
      log,
      snapshot: () => pods.snapshot(),
      onProxies: () => queueMicrotask(() => pods.proxiesChanged()),
    });
    const pods = new NodeEnrolments({
      zds,
      rows: kubernetes === null ? rows : kubernetes.beside(rows),
      tell: (record, event, text) => kubernetes?.events.warn(record, event, text),
      redirector,
      slots: new Slots(() => MAX_RULE_WRITERS, clock),
      clock,
      log,
      metrics,
      ruleSets: new RuleSets(config.redirect),
      existing: config.existing,
      sysctlDir: join(config.procDir, 'sys'),
      namespaces: this.#openNamespaces(log),
      eligibility: config.eligibility,
      ownNamespaces: ownNamespaces(config.procDir),
      drainMs: config.drainMs,
      supervise: (work) => context.supervise('pods', work),
    });
    this.#pods = pods;
    this.#made.defer(() => pods.stop());
    this.#made.defer(() => zds.close());
    this.#declareRoutes(context, { bus, zds, pods, rows, kubernetes, noZones, node });
    const source = kubernetes?.pods ?? (await this.#openSource(context, node, metrics));
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
          kubernetes?.probes.start();
          release();
        }),
      );
    });
    await this.#holdStarts(context, { node, source, pods });
    this.#openDeparture = departureOf(config, node, context);
  }

  async #openKubernetes(
    context: ActorContext,
    node: string,
    tools: RedirectTools,
  ): Promise<KubernetesParts | null> {
    const { pods, procDir, redirect, forceIptables, socketPath, hostRoot } = this.#config;
    if (pods.kind !== 'kubernetes') return null;
    const lockDir = dirname(socketPath);
    const hostProbes = await chooseHostProbes(tools, { force: forceIptables, lockDir });
    context.log.info({ rules: hostProbes.scripts.name }, 'agent.host-probes');
    const { probeAddress } = redirect;
    const site = { node, procDir, probeAddress, hostProbes, hostRoot };
    return this.#made.use(await KubernetesParts.open(pods.connection, context, site));
  }

  #openNamespaces(log: Logger): PodNamespaces {
    const { procDir, runtimeSocket } = this.#config;
    const sandboxes = runtimeSocket === null ? null : new Sandboxes(runtimeSocket);
    this.#made.defer(() => sandboxes?.close());
    return new PodNamespaces({ procDir, sandboxes, log });
  }

  async #openSource(
    context: ActorContext,
    node: string,
    metrics: AgentMetrics,
  ): Promise<PodSource> {
    const { pods, procDir, eligibility: rules } = this.#config;
    if (pods.kind !== 'docker') return this.#openDirectory(context, node, metrics);
    // Only agents of Docker hosts take the memory of its client.
    const { DockerPods: Source } = await import('./docker/docker-pods.ts');
    const { clock, log } = context;
    const onProblem = (): void => metrics.sourceProblem('engine');
    const source = new Source({ ...pods, node, procDir, rules, clock, log, onProblem });
    this.#made.defer(() => source.close());
    this.#docker = source;
    return source;
  }

  /** Answers the programs that hold the start of a pod until it is enrolled. */
  async #holdStarts(
    context: ActorContext,
    parts: { readonly node: string; readonly source: PodSource; readonly pods: NodeEnrolments },
  ): Promise<void> {
    await this.#openCni(context, parts);
    if (this.#docker !== null) await this.#openHeld(context, { ...parts, source: this.#docker });
  }

  async #openHeld(
    { clock, log, metrics }: ActorContext,
    parts: Pick<HeldContainerDeps, 'node' | 'source' | 'pods'>,
  ): Promise<void> {
    const { procDir, socketPath, eligibility: rules } = this.#config;
    const held = await import('./docker/held-containers.ts');
    const starts = metrics.counter(
      'nodeagent_container_starts_total',
      'Containers that weft-runtime asked about',
      ['response_code'],
    );
    const server = new StartServer({
      socket: join(dirname(socketPath), held.RUNTIME_SOCKET),
      route: held.RUNTIME_ROUTE,
      name: 'runtime',
      read: (body) => held.readHeldContainer(body, { ...parts, procDir, rules }),
      clock,
      log,
      onAnswer: (status) => starts.inc({ response_code: String(status) }),
    });
    this.#made.defer(() => server.close());
    await server.listen();
  }

  #openDirectory(context: ActorContext, node: string, metrics: AgentMetrics): PodSource {
    const { pods, rescanMs } = this.#config;
    assert(pods.kind === 'directory', 'the pods of the other kinds come from elsewhere');
    const source = new PodDirectory({
      path: pods.path,
      node,
      rescanMs,
      clock: context.clock,
      log: context.log,
      onProblem: (kind) => metrics.sourceProblem(kind),
      supervise: (work) => context.supervise('pod directory', work),
    });
    this.#made.defer(() => source.close());
    return source;
  }

  /** The next agent continues unfinished work; only an agent that leaves for good cleans the node up. */
  async drain(deadline: Deadline): Promise<void> {
    if (this.#openDeparture === null) return;
    using departing = await this.#openDeparture();
    if (!(await departing.leaves())) return;
    await this.#cni?.remove();
    if (await departing.isReplaced()) return;
    const pods = present(this.#pods, 'the agent has started');
    const left = pods.leaveNode(() => deadline.remainingMs() > LEAVE_REST_MS);
    if (await departing.isReplacedDuring(left)) {
      await pods.handOver();
      return;
    }
    await this.#kubernetes?.leaveNode(deadline);
  }

  stop(): Promise<void> {
    return this.#made.disposeAsync();
  }

  async #openCni(
    context: ActorContext,
    parts: { readonly source: PodSource; readonly pods: NodeEnrolments },
  ): Promise<void> {
    const { cni, eligibility: rules } = this.#config;
    if (cni === null) return;
    const opened = await Cni.open(cni, { context, rules, ...parts });
    this.#made.defer(() => opened.close());
    this.#cni = opened;
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
    parts: {
      readonly bus: Bus;
      readonly zds: ZdsAgent;
      readonly pods: NodeEnrolments;
      readonly rows: EnrolmentRows;
    } & Pick<ProofParts, 'kubernetes' | 'noZones' | 'node'>,
  ): void {
    const { bus, zds, pods, rows } = parts;
    context.admin.route('GET', '/enrolments', (_request, response) => {
      sendJson(response, 200, pods.view());
    });
    context.admin.route('GET', '/proof', async (_request, response) => {
      const now = { proxies: zds.connections.length, redisConnected: bus.connected };
      sendJson(response, 200, await proveNode({ ...parts, ...now, cni: this.#cni }));
    });
    context.admin.route('POST', '/cut', (_request, response) => {
      sendJson(response, 200, { cut: pods.cutOpen() });
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

/** Null without a DaemonSet: nothing tells then that the agent leaves. */
function departureOf(
  { departure }: NodeAgentConfig,
  node: string,
  context: ActorContext,
): (() => Promise<Departing>) | null {
  return departure === null ? null : () => Departing.open(departure, node, context);
}

async function openTools(config: NodeAgentConfig, log: Logger): Promise<ChosenTools> {
  const chosen = (await nativeTools(config, log)) ?? (await iptablesTools(config));
  const { noZones, ...tools } = chosen;
  log.info({ ...tools, files: raiseFileLimit().soft }, 'agent.tools');
  if (noZones !== null) log.warn({ flavour: tools.flavour, reason: noZones }, 'agent.no-zones');
  return chosen;
}

/** Null where native tables are not wanted, or do not work: iptables has the same rules. */
async function nativeTools(config: NodeAgentConfig, log: Logger): Promise<ChosenTools | null> {
  if (!config.nativeNftables) return null;
  const chosen = await chooseNative(config.redirect.ipv6);
  if (!('reason' in chosen)) return chosen;
  log.warn({ reason: chosen.reason }, 'agent.no-native-nftables');
  return null;
}

function iptablesTools({
  redirect,
  forceIptables,
  socketPath,
}: NodeAgentConfig): Promise<ChosenTools> {
  const lockDir = dirname(socketPath);
  return chooseTools({ ipv6: redirect.ipv6, force: forceIptables, lockDir });
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
