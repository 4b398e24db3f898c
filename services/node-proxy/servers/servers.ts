import { sendJson, sendText } from '../../../lib/actor/admin-routes.ts';
import type { AdminRoutes } from '../../../lib/actor/admin-routes.ts';
import type { Clock } from '../../../lib/clock/clock.ts';
import type { CertificateRecord } from '../../../lib/identity/certificate-records.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import type { ConnectionRecord } from '../../../workers/listener/protocol.ts';
import type { NodeProxyConfig } from '../config.ts';
import { descriptorCounts } from '../metrics.ts';
import { adminHandler } from './admin.ts';
import type { AdminActions } from './admin.ts';
import { PortServer } from './port-server.ts';
import { readinessHandler } from './readiness.ts';
import { renderStats, statsHandler } from './stats.ts';
import type { StatsSources } from './stats.ts';

/** What the servers show and do. */
export interface ServersDependencies extends AdminActions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly stats: Omit<StatsSources, 'descriptors'>;
  pending(): readonly string[];
  connections(): Promise<readonly ConnectionRecord[]>;
  certificates(): readonly CertificateRecord[];
}

/** Admin (15000), stats (15020) and readiness (15021) in the node's namespace. */
export class NodeProxyServers {
  readonly #deps: ServersDependencies;
  readonly #stats: StatsSources;
  readonly #servers: Readonly<Record<'admin' | 'stats' | 'readiness', PortServer>>;

  constructor(config: NodeProxyConfig, deps: ServersDependencies) {
    this.#deps = deps;
    this.#stats = { ...deps.stats, descriptors: descriptorCounts };
    const { ipv6 } = config.listener;
    const everywhere = [ipv6 ? '::' : '0.0.0.0'];
    this.#servers = {
      admin: new PortServer(
        {
          name: 'admin',
          port: config.ports.admin,
          hosts: ipv6 ? ['127.0.0.1', '::1'] : ['127.0.0.1'],
          handler: adminHandler(deps),
        },
        deps,
      ),
      stats: new PortServer(
        {
          name: 'stats',
          port: config.ports.stats,
          hosts: everywhere,
          handler: statsHandler(this.#stats),
        },
        deps,
      ),
      readiness: new PortServer(
        {
          name: 'readiness',
          port: config.ports.readiness,
          hosts: everywhere,
          handler: readinessHandler(() => deps.pending()),
        },
        deps,
      ),
    };
  }

  /** The ports served now; ephemeral where another process holds the standard one. */
  get ports(): Readonly<Record<string, number | null>> {
    const { admin, stats, readiness } = this.#servers;
    return { admin: admin.port, stats: stats.port, readiness: readiness.port };
  }

  /** Listens on all three. */
  async listen(): Promise<void> {
    for (const server of Object.values(this.#servers)) await server.listen();
  }

  /** The same data on the process's own admin server, which is reached without entering the node's namespace. */
  route(admin: AdminRoutes): void {
    const deps = this.#deps;
    admin.route('GET', '/connections', async (_request, response) =>
      sendJson(response, 200, { connections: await deps.connections() }),
    );
    admin.route('GET', '/certificates', (_request, response) =>
      sendJson(response, 200, { certificates: deps.certificates() }),
    );
    admin.route('GET', '/config_dump', async (_request, response) =>
      sendJson(response, 200, await deps.configDump()),
    );
    admin.route('GET', '/ports', (_request, response) => sendJson(response, 200, this.ports));
    admin.route('GET', '/stats', async (_request, response) =>
      sendText(response, 200, await renderStats(this.#stats)),
    );
  }

  /** Leaves the standard ports to another process, and goes on at others. */
  async yield(): Promise<void> {
    await Promise.all(Object.values(this.#servers).map((server) => server.yield()));
  }

  /** Stops listening. Idempotent. */
  async close(): Promise<void> {
    await Promise.all(Object.values(this.#servers).map((server) => server.close()));
  }
}
