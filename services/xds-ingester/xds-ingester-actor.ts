import { readFile } from 'node:fs/promises';
import type { Actor, ActorContext, ActorDefinition, Deadline } from '../../lib/actor/actor.ts';
import { sendJson } from '../../lib/http/answers.ts';
import type { Bus } from '../../lib/bus/redis-bus.ts';
import { connectBus } from '../../lib/bus/redis-bus.ts';
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
import { INGEST_LEASE, STANDBY_AFTER_MS } from './limits.ts';
import { MeshState, OWNED_TABLES } from './mesh-state.ts';
import { createIngesterMetrics } from './metrics.ts';
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
    const source = this.#source(context, state, xdsMetrics);
    const publisher = new StatePublisher({ bus, lease, state, source, clock, log }, ready);
    this.#publisher = publisher;
    this.#made.defer(() => publisher.close());
    context.supervise('publisher', publisher.finished);
    createIngesterMetrics(metrics, {
      state,
      leading: () => lease.held,
      live: () => this.#client?.live ?? false,
    });
    whenStandby(
      bus,
      context,
      () => lease.held,
      () => {
        publisher.standBy();
        ready();
      },
    );
    context.admin.route('GET', '/state', (_request, response) =>
      sendJson(response, 200, {
        leading: lease.held,
        live: source.live,
        published: publisher.idle,
        rows: Object.fromEntries(OWNED_TABLES.map((table) => [table, state.tables[table].size])),
      }),
    );
    log.info({ server: this.#config.xds?.address ?? null, local: local.length }, 'ingest.started');
  }

  async drain(_deadline: Deadline): Promise<void> {
    // Gives the lease back first, so that a standby takes over while this process ends.
    await this.stop();
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#made.disposeAsync();
    return this.#stopping;
  }

  #changed(): void {
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
        start: () => state.dropRemote(),
        reopen: () => undefined,
      };
    }
    const client = (): DeltaClient | null => this.#client;
    return {
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
          sink: state,
          clock,
          log,
          metrics,
        });
        started.onLive(() => this.#changed());
        this.#client = started;
        this.#made.defer(() => started.close());
        context.supervise('xds client', started.finished);
      },
      reopen: () => client()?.reopen(),
    };
  }
}

/** Calls `standsBy` when Redis is there and another ingester holds the lease. */
function whenStandby(
  bus: Bus,
  context: ActorContext,
  leading: () => boolean,
  standsBy: () => void,
): void {
  const release = bus.onConnection((connected) => {
    if (!connected) return;
    release();
    context.clock.after(STANDBY_AFTER_MS, () => {
      if (leading()) return;
      context.log.info('ingest.standby');
      standsBy();
    });
  });
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
