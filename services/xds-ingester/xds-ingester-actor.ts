import { readFile } from 'node:fs/promises';
import type { Actor, ActorContext, ActorDefinition, Deadline } from '../../lib/actor/actor.ts';
import { sendJson } from '../../lib/http/answers.ts';
import type { Bus } from '../../lib/bus/redis-bus.ts';
import type { Lease } from '../../lib/bus/lease.ts';
import { connectBus } from '../../lib/bus/redis-bus.ts';
import type { Mark } from '../../lib/bus/table-writer.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { openGrpcClient } from '../../lib/grpc/client.ts';
import {
  DeltaClient,
  XDS_MESSAGE_BYTES_MAX,
  createXdsMetrics,
} from '../../lib/xds/delta-client.ts';
import type { XdsMetrics } from '../../lib/xds/delta-client.ts';
import { parseLocalFile } from '../../lib/xds/local/parse.ts';
import type { LocalFileResource } from '../../lib/xds/local/parse.ts';
import { acceptWhileLeading } from './accept-job.ts';
import { ingesterConfig } from './config.ts';
import type { IngesterConfig } from './config.ts';
import { HoldWatch } from './hold-watch.ts';
import { INGEST_LEASE } from './limits.ts';
import { MeshState, OWNED_TABLES } from './mesh-state.ts';
import { createIngesterMetrics } from './metrics.ts';
import { followWhileLeading } from './on-demand/follow-wanted.ts';
import { OnDemandMesh } from './on-demand/on-demand-mesh.ts';
import { onceStandby } from './standby.ts';
import { StatePublisher } from './state-publisher.ts';
import type { StateSource } from './state-publisher.ts';

/** Name of the lease, mesh scope. */
const LEASE = 'ingest';

/** The actor that feeds mesh state into Redis. */
export const definition: ActorDefinition<IngesterConfig> = {
  name: 'xds-ingester',
  perNode: false,
  config: ingesterConfig,
  create: (config) => new XdsIngester(config),
};

class XdsIngester implements Actor {
  readonly #config: IngesterConfig;
  /** Everything that the start and the source made; disposed in reverse order: what feeds Redis ends before its connection. */
  readonly #made = new AsyncDisposableStack();
  #client: DeltaClient | null = null;
  #publisher: StatePublisher | null = null;
  #watch: HoldWatch | null = null;
  /** Null while the whole mesh is followed. */
  #onDemand: OnDemandMesh | null = null;
  #stopping: Promise<void> | null = null;

  constructor(config: IngesterConfig) {
    this.#config = config;
  }

  async start(context: ActorContext): Promise<void> {
    const { clock, log, metrics, readiness } = context;
    const local = await readLocal(this.#config.local);
    const ready = readiness.block('state manager');
    const bus = connectBus(this.#config.bus, {
      log,
      clock,
      metrics,
      name: 'xds-ingester',
      supervise: context.supervise,
    });
    this.#made.defer(() => bus.close());
    const lease = bus.lease(LEASE, 'mesh', INGEST_LEASE);
    const rule = { holdMs: this.#config.holdRemovalsMs, log };
    const state: MeshState = new MeshState(clock, local, () => this.#changed(), rule);
    const watch = new HoldWatch({ clock, state, live: () => this.#client?.live ?? false });
    this.#watch = watch;
    this.#made.defer(() => watch.close());
    acceptWhileLeading({ bus, lease, state, supervise: context.supervise.bind(context) });
    const xdsMetrics = createXdsMetrics(metrics);
    const onDemand = this.#config.onDemand ? this.#followNames(context, bus, lease, state) : null;
    const source = this.#source(context, state, xdsMetrics);
    const stamp = (mark: Mark): boolean => onDemand?.stamp(mark) ?? false;
    const publisher = new StatePublisher({ bus, lease, state, source, stamp, clock, log }, ready);
    this.#publisher = publisher;
    this.#made.defer(() => publisher.close());
    context.supervise('publisher', publisher.finished);
    createIngesterMetrics(metrics, {
      state,
      leading: () => lease.held,
      live: () => this.#client?.live ?? false,
      onDemand,
    });
    this.#made.defer(
      onceStandby({ bus, lease, clock }, () => {
        log.info('ingest.standby');
        publisher.standBy();
        ready();
      }),
    );
    context.admin.route('GET', '/state', (_request, response) =>
      sendJson(response, 200, {
        leading: lease.held,
        live: source.live,
        published: publisher.idle,
        onDemand: namesOf(onDemand),
        rows: Object.fromEntries(OWNED_TABLES.map((table) => [table, state.tables[table].size])),
      }),
    );
    const server = this.#config.xds?.address ?? null;
    log.info({ server, local: local.length, onDemand: onDemand !== null }, 'ingest.started');
  }

  async drain(_deadline: Deadline): Promise<void> {
    // Gives the lease back first, so that a standby takes over while this process ends.
    await this.stop();
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#made.disposeAsync();
    return this.#stopping;
  }

  #followNames(context: ActorContext, bus: Bus, lease: Lease, state: MeshState): OnDemandMesh {
    const { clock, log } = context;
    const mesh = new OnDemandMesh({ state, clock, log, changed: () => this.#changed() });
    const supervise = context.supervise.bind(context);
    this.#made.defer(followWhileLeading({ bus, lease, mesh, clock, supervise }));
    this.#onDemand = mesh;
    return mesh;
  }

  #changed(): void {
    this.#client?.demand();
    this.#watch?.look();
    this.#publisher?.poke();
  }

  /** The control plane as the source of the state; without one the local file is the whole state. */
  #source(context: ActorContext, state: MeshState, metrics: XdsMetrics): StateSource {
    const { xds, node } = this.#config;
    const { clock, log } = context;
    if (xds === null) {
      return {
        live: true,
        complete: true,
        partial: false,
        start: () => state.dropRemote(),
        reopen: () => undefined,
      };
    }
    const client = (): DeltaClient | null => this.#client;
    const onDemand = this.#onDemand;
    return {
      partial: onDemand !== null,
      get live() {
        return client()?.live ?? false;
      },
      get complete() {
        return client()?.everSynced ?? false;
      },
      start: () => {
        if (this.#made.disposed) return;
        const started = new DeltaClient({
          open: () => openGrpcClient({ ...xds, maxReceiveBytes: XDS_MESSAGE_BYTES_MAX }),
          node,
          sink: onDemand ?? state,
          clock,
          log,
          metrics,
          ...(onDemand === null ? {} : { demanded: onDemand.names }),
        });
        started.onLive(() => {
          if (onDemand === null) state.forgetNames();
          this.#changed();
        });
        this.#client = started;
        this.#made.defer(() => started.close());
        context.supervise('xds client', started.finished);
      },
      reopen: () => client()?.reopen(),
    };
  }
}

/** The names on demand, for people; null while the whole mesh is followed. */
function namesOf(mesh: OnDemandMesh | null): object | null {
  if (mesh === null) return null;
  const { names, refused } = mesh;
  return { names: names.size, unanswered: names.unanswered, refused };
}

async function readLocal(local: IngesterConfig['local']): Promise<readonly LocalFileResource[]> {
  if (local === null) return [];
  if ('text' in local) return parseLocalFile(local.text, 'LOCAL_XDS');
  let text: string;
  try {
    text = await readFile(local.path, 'utf8');
  } catch (error) {
    throw new MeshError('CONFIG_INVALID', `LOCAL_XDS_PATH ${local.path}: ${errorText(error)}`, {
      cause: error,
    });
  }
  return parseLocalFile(text, local.path);
}
