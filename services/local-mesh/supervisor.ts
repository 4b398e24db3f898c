/** Brings a local mesh up and keeps its processes running until it is told to take it down. */
import { mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { inTime } from '../../lib/async/time-limit.ts';
import type { Clock } from '../../lib/clock/clock.ts';
import type { Environment } from '../../lib/config/env.ts';
import { present } from '../../lib/errors/assert.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import type { HttpServer } from '../../lib/http/http-server.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { actorProcesses, sampleProcess, sampleSocket } from './actor-process.ts';
import { cleanUp } from './cleanup.ts';
import { limitLogs, misconfigured } from './log-files.ts';
import { ManagedProcess, lateActors } from './managed-process.ts';
import type { ProcessSpec, ProcessStatus } from './managed-process.ts';
import { ManifestApi } from './manifest-api.ts';
import type { ManifestDocument } from './manifests.ts';
import { podRecordsDir } from './mesh-paths.ts';
import type { MeshPaths } from './mesh-paths.ts';
import { writeRecord } from './mesh-record.ts';
import { createMeshNamespaces } from './namespaces.ts';
import { prepareMountsDir } from './pod-namespaces.ts';
import { PodRuntime } from './pod-runtime.ts';
import { processId } from './processes.ts';
import { redisAnswers, redisProcess, writeRedisFiles } from './redis.ts';
import { RoleProcesses, upgradeInTurn } from './role-processes.ts';
import type { Upgraded } from './role-processes.ts';
import { meshRoles, roleName, sameRole } from './roles.ts';
import type { Role } from './roles.ts';
import { SampleFleet } from './sample-fleet.ts';
import { supervisorServer } from './supervisor-api.ts';
import type { MeshStatus, PodLine, SupervisorView } from './supervisor-api.ts';
import { TokenIssuer } from './tokens.ts';
import type { MeshPlan } from './topology.ts';

/** Interval between questions to the processes for their state, and while the mesh is ready: each question is work in every process. */
const REFRESH_MS = 500;
const STEADY_REFRESH_MS = 10_000;
/** Longest time that `weft status` waits for those questions. */
const ANSWER_WITHIN_MS = 1_000;
/** Interval between checks of the logs' size. */
const LOG_CHECK_MS = 10_000;
/** Time limit for Redis and the control plane's API to answer during the start. */
const START_TIMEOUT_MS = 180_000;
const POLL_MS = 50;
/** Actors drain at most this long when the mesh goes down, because the pods end as well. */
const STOP_GRACE_MS = 3_000;

/** The line in `weft status` of a role that the user's own program plays. */
const EXTERNAL = {
  pid: null,
  state: 'external',
  pending: [],
  restarts: 0,
  uptimeSeconds: 0,
  generation: 0,
  retiring: false,
} as const;

/** Settings of a mesh. */
export interface MeshRequest {
  readonly plan: MeshPlan;
  readonly paths: MeshPaths;
  readonly documents: readonly ManifestDocument[];
  readonly external: readonly Role[];
  readonly environment: Environment;
  /** Number of proxies on each node; they share its pods. */
  readonly proxies: number;
}

/** Called for each step of the start, with its duration. */
export type ProgressListener = (step: string, elapsedMs: number) => void;

/** The local mesh that this process runs. */
export class Supervisor {
  readonly #request: MeshRequest;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #tokens: TokenIssuer;
  readonly #manifests: ManifestApi;
  readonly #samples: SampleFleet;
  readonly #pods: PodRuntime;
  readonly #api: HttpServer;
  readonly #stop = new AbortController();
  readonly #roles: RoleProcesses[] = [];
  /** The nodes' default servers. */
  readonly #servers: ManagedProcess[] = [];
  readonly #redis: ManagedProcess;
  /** Resources of the start; the end disposes of them, the latest first. */
  readonly #made = new AsyncDisposableStack();
  #redisUp = false;
  /** When the processes were asked last, and those questions while they are under way. */
  #askedAt = -Infinity;
  #refreshing: Promise<void> | null = null;
  #started = false;
  #starting: Promise<void> = Promise.resolve();
  #down: Promise<void> | null = null;

  constructor(request: MeshRequest, deps: { readonly clock: Clock; readonly log: Logger }) {
    const { plan, paths } = request;
    this.#request = request;
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#tokens = new TokenIssuer(plan, paths, deps);
    this.#redis = this.#manage(redisProcess(plan, paths));
    this.#manifests = new ManifestApi(paths.controlSocket);
    this.#samples = new SampleFleet((node) => sampleSocket(paths, node));
    this.#pods = new PodRuntime({
      ...deps,
      plan,
      paths,
      api: this.#manifests,
      samples: this.#samples,
    });
    const view: SupervisorView = {
      status: async () => {
        // A process that does not answer must not hold up what is said of the others.
        await inTime(this.#clock, ANSWER_WITHIN_MS, this.#refreshed(REFRESH_MS));
        return this.status();
      },
      pods: () => this.pods(),
      down: () => this.#stop.abort(new Error('weft down')),
      upgrade: (roles, timeoutMs) => this.#upgrade(roles, timeoutMs),
    };
    this.#api = supervisorServer(view, this.#log);
  }

  /** Aborted when a caller of the API asks that the mesh goes down. */
  get stopRequested(): AbortSignal {
    return this.#stop.signal;
  }

  /**
   * Brings the mesh up until processes run and manifests are applied; pods follow. Throws when a step fails or
   * {@link down} was called meanwhile. The caller then calls {@link down}, which removes the finished parts.
   */
  up(progress: ProgressListener): Promise<void> {
    this.#starting = this.#start(progress);
    return this.#starting;
  }

  async #start(progress: ProgressListener): Promise<void> {
    const { plan, paths } = this.#request;
    const step = async (name: string, work: () => Promise<void>): Promise<void> => {
      const start = this.#clock.monotonic();
      this.#assertWanted();
      await work();
      this.#assertWanted();
      progress(name, this.#clock.monotonic() - start);
    };
    await this.#makeFolders();
    await this.#writeRecord();
    this.#made.defer(() => this.#api.close());
    await this.#api.listen({ kind: 'unix', path: paths.supervisorSocket });
    await step(`namespaces of ${plan.nodes.length} nodes`, () => createMeshNamespaces(plan));
    await step('redis, users and tokens', () => this.#startRedis());
    await step('actors started', () => this.#startActors());
    this.#watchProcesses();
    const own = !this.#isExternal({ actor: 'control-plane', node: null });
    if (own) {
      await step(`${this.#request.documents.length} manifests applied`, () => this.#apply());
    } else {
      this.#applyLater();
    }
    this.#made.defer(() => this.#pods.stop());
    this.#pods.start();
    this.#started = true;
  }

  /** The data of `weft status`. */
  status(): MeshStatus {
    const { plan, paths, environment } = this.#request;
    const actors = this.#actorStatus();
    const redis = this.#redis.status();
    const waiting = [...(this.#redisUp ? [] : ['redis']), ...lateActors(actors)];
    return {
      mesh: plan.mesh,
      runDirectory: paths.root,
      supervisor: { pid: process.pid },
      nodes: plan.nodes.map((node) => ({
        name: node.name,
        netns: node.netns,
        addresses: [node.link.ipv4, node.link.ipv6],
        pods: this.#pods.pods().filter((pod) => pod.sandbox.node === node).length,
      })),
      actors,
      redis: {
        pid: redis.pid,
        state: this.#redisUp ? 'ready' : redis.state,
        restarts: redis.restarts,
        socket: paths.redisSocket,
      },
      // The actors refuse any value but these two.
      waypointBypass: environment['WEFT_WAYPOINT_BYPASS'] === 'allow' ? 'allow' : 'deny',
      started: this.#started,
      ready: this.#started && waiting.length === 0,
      waiting,
    };
  }

  /** The running pods. */
  pods(): readonly PodLine[] {
    return this.#pods.pods().map((pod) => pod.line());
  }

  /** Stops and removes everything. Later calls wait for the first. */
  down(): Promise<void> {
    this.#down ??= this.#takeDown();
    return this.#down;
  }

  async #takeDown(): Promise<void> {
    // A start in progress ends at its next step; it can make nothing after this.
    await Promise.all([this.#made.disposeAsync(), this.#starting.catch(() => undefined)]);
    await cleanUp(this.#request.paths);
  }

  #assertWanted(): void {
    if (!this.#stop.signal.aborted && !this.#made.disposed) return;
    throw new MeshError('ACTOR_FAILED', 'the mesh was taken down while it started');
  }

  async #makeFolders(): Promise<void> {
    const { plan, paths } = this.#request;
    const folders = [
      paths.redisDir,
      paths.controlDir,
      paths.caDir,
      dirname(paths.rootsFile),
      paths.tokensDir,
      paths.logsDir,
      paths.adminDir,
      paths.hostsDir,
      ...plan.nodes.map((node) => podRecordsDir(paths, node.name)),
    ];
    for (const folder of folders) await mkdir(folder, { recursive: true, mode: 0o755 });
    await prepareMountsDir(paths.mountsDir);
  }

  async #writeRecord(): Promise<void> {
    const { plan, paths, external } = this.#request;
    await writeRecord(paths, {
      mesh: plan.mesh,
      supervisor: present(await processId(process.pid), 'this process runs'),
      nodes: plan.nodes.length,
      external: external.map(roleName),
      startedAt: new Date(this.#clock.now()).toISOString(),
    });
  }

  async #startRedis(): Promise<void> {
    const { plan, paths } = this.#request;
    await writeRedisFiles(plan, paths);
    this.#made.defer(() => this.#redis.stop(STOP_GRACE_MS));
    await this.#redis.start();
    this.#made.defer(() => this.#tokens.stop());
    await this.#tokens.start();
    await this.#until('redis answers', () => redisAnswers(paths.redisSocket));
    this.#redisUp = true;
  }

  async #startActors(): Promise<void> {
    const { plan, external } = this.#request;
    const roles = meshRoles(plan).filter((role) => !this.#isExternal(role));
    for (const role of roles) {
      const deps = { clock: this.#clock, log: this.#log };
      this.#roles.push(new RoleProcesses(await actorProcesses(role, this.#request), deps));
    }
    for (const node of plan.nodes) {
      const process = this.#manage(sampleProcess(node, this.#request));
      process.onChange = () => {
        this.#samples.forget(node.name);
        this.#pods.refresh();
      };
      this.#servers.push(process);
    }
    const processes = [...this.#roles, ...this.#servers];
    this.#made.defer(async () => {
      await Promise.all(processes.map((process) => process.stop(STOP_GRACE_MS)));
    });
    await Promise.all(processes.map((process) => process.start()));
    for (const role of external) this.#log.info({ role: roleName(role) }, 'role.external');
  }

  #manage(spec: ProcessSpec): ManagedProcess {
    return new ManagedProcess(spec, { clock: this.#clock, log: this.#log });
  }

  #watchProcesses(): void {
    this.#every(REFRESH_MS, () => {
      void this.#refreshed(this.status().ready ? STEADY_REFRESH_MS : REFRESH_MS);
    });
    this.#every(LOG_CHECK_MS, () => {
      limitLogs(this.#request.paths.logsDir).catch((error: unknown) => {
        this.#log.warn({ error: errorText(error) }, 'log.limit-failed');
      });
    });
  }

  /** Asks all processes, unless that was done less than `maxAgeMs` ago. Joins the questions that are under way. */
  async #refreshed(maxAgeMs: number): Promise<void> {
    const now = this.#clock.monotonic();
    if (this.#refreshing === null) {
      if (now - this.#askedAt < maxAgeMs) return;
      this.#askedAt = now;
      this.#refreshing = this.#refresh().finally(() => (this.#refreshing = null));
    }
    await this.#refreshing;
  }

  /** Asks all processes. All of them at once would take every processor from what the mesh carries. */
  async #refresh(): Promise<void> {
    const processes = [...this.#roles, ...this.#servers, this.#redis];
    try {
      if (this.status().ready) for (const process of processes) await process.refresh();
      else await Promise.all(processes.map((process) => process.refresh()));
      this.#redisUp = await redisAnswers(this.#request.paths.redisSocket);
    } catch (error) {
      this.#log.error({ error: errorText(error) }, 'status.refresh-failed');
    }
  }

  #every(intervalMs: number, action: () => void): void {
    const timer = this.#clock.every(intervalMs, action);
    this.#made.defer(() => timer.cancel());
  }

  async #apply(): Promise<void> {
    await this.#until('the control plane takes manifests', async () => {
      await this.#assertConfigured();
      try {
        await this.#manifests.apply(this.#request.documents);
        return true;
      } catch (error) {
        if (error instanceof MeshError && error.code === 'STATE_UNAVAILABLE') return false;
        throw error;
      }
    });
  }

  /** Applies the manifests once the user's own control plane answers, which may be at any time. */
  #applyLater(): void {
    this.#apply().catch((error: unknown) => {
      if (this.#stop.signal.aborted || this.#made.disposed) return;
      this.#log.warn({ error: errorText(error) }, 'manifests.not-applied');
    });
  }

  async #assertConfigured(): Promise<void> {
    const processes = [...this.#roles.flatMap(({ members }) => members), ...this.#servers];
    const broken = processes.find((process) => process.misconfigured);
    if (broken !== undefined) throw await misconfigured(broken.spec.name, broken.spec.logFile);
  }

  async #until(what: string, condition: () => Promise<boolean>): Promise<void> {
    const end = this.#clock.monotonic() + START_TIMEOUT_MS;
    while (!(await condition())) {
      this.#assertWanted();
      if (this.#clock.monotonic() > end) {
        throw new MeshError('ACTOR_DEADLINE', `within ${START_TIMEOUT_MS / 1_000} s not: ${what}`);
      }
      await this.#clock.sleep(POLL_MS);
    }
  }

  #actorStatus(): ProcessStatus[] {
    const { plan, external } = this.#request;
    return meshRoles(plan).flatMap((role) => {
      const node = role.node?.name ?? null;
      if (external.some((one) => sameRole(one, role))) {
        return [{ ...EXTERNAL, name: role.actor, node }];
      }
      return this.#processesOf(role)?.status() ?? [];
    });
  }

  #processesOf(role: Role): RoleProcesses | undefined {
    const node = role.node?.name ?? null;
    return this.#roles.find((one) => one.name === role.actor && one.node === node);
  }

  #upgrade(names: readonly string[], timeoutMs: number): Promise<readonly Upgraded[]> {
    return upgradeInTurn(names, this.#request.plan, (role) => {
      const processes = this.#processesOf(role);
      if (processes !== undefined) return processes.upgrade(timeoutMs);
      throw new MeshError('STATE_CONFLICT', `${roleName(role)} is run by somebody else`);
    });
  }

  #isExternal(role: Role): boolean {
    return this.#request.external.some((one) => sameRole(one, role));
  }
}
