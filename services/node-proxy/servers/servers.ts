import { setImmediate as turn } from 'node:timers/promises';
import { sendJson, sendText } from '../../../lib/http/answers.ts';
import type { HttpHandler, Routes } from '../../../lib/http/routes.ts';
import type { Clock } from '../../../lib/clock/clock.ts';
import type { CertificateRecord } from '../../../lib/identity/certificate-records.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import type { ConnectionRecord } from '../../../workers/listener/protocol/connections.ts';
import type { NodeProxyConfig } from '../config.ts';
import { DUMP_OBJECTS_PER_MESSAGE } from '../limits.ts';
import { descriptorCounts } from '../metrics.ts';
import { AdminPaths } from './admin.ts';
import type { AdminActions } from './admin.ts';
import { PacedPage } from './paced-page.ts';
import { PortServer } from './port-server.ts';
import { readinessHandler } from './readiness.ts';
import { sendTexts } from './stream-body.ts';
import { renderStats, statsHandler } from './stats.ts';
import type { StatsSources } from './stats.ts';

/** Dependencies of the servers. */
export interface ServersDeps extends AdminActions {
  readonly clock: Clock;
  /** How many descriptors the process may have. */
  readonly descriptors: number;
  readonly log: Logger;
  readonly stats: Omit<StatsSources, 'descriptors'>;
  pending(): readonly string[];
  /** Returns live connections, or with `recent` those that ended lately. */
  connections(
    what: 'connections' | 'recent',
    withLines: boolean,
  ): Promise<readonly ConnectionRecord[]>;
  certificates(): readonly CertificateRecord[];
}

/** The servers for admin (15000), stats (15020) and readiness (15021) in the node's namespace. */
export class NodeProxyServers {
  readonly #deps: ServersDeps;
  readonly #stats: StatsSources;
  readonly #admin: AdminPaths;
  readonly #servers: Readonly<Record<'admin' | 'stats' | 'readiness', PortServer>>;

  constructor(config: NodeProxyConfig, deps: ServersDeps) {
    this.#deps = deps;
    this.#stats = { ...deps.stats, descriptors: descriptorCounts };
    this.#admin = new AdminPaths(deps);
    const page = new PacedPage(() => renderStats(this.#stats), deps.clock);
    const { ipv6 } = config.listener;
    const everywhere = [ipv6 ? '::' : '0.0.0.0'];
    const local = ipv6 ? ['127.0.0.1', '::1'] : ['127.0.0.1'];
    const server = (
      name: keyof NodeProxyConfig['ports'],
      hosts: readonly string[],
      handler: HttpHandler,
    ): PortServer => new PortServer({ name, port: config.ports[name], hosts, handler }, deps);
    this.#servers = {
      admin: server('admin', local, this.#admin.handler),
      stats: server(
        'stats',
        everywhere,
        statsHandler(() => page.text()),
      ),
      readiness: server(
        'readiness',
        everywhere,
        readinessHandler(() => deps.pending()),
      ),
    };
  }

  /** The ports served now. A port is ephemeral while another process holds the standard one. */
  get ports(): Readonly<Record<string, number | null>> {
    const { admin, stats, readiness } = this.#servers;
    return { admin: admin.port, stats: stats.port, readiness: readiness.port };
  }

  /** Listens on all three. */
  async listen(): Promise<void> {
    for (const server of Object.values(this.#servers)) await server.listen();
  }

  /** Serves the same data on the process's own admin server, which clients reach without entering the node's namespace. */
  route(admin: Routes): void {
    const deps = this.#deps;
    admin.route('GET', '/connections', async (_request, response, url) => {
      const withLines = url.searchParams.has('lines');
      const ended = url.searchParams.has('ended')
        ? await deps.connections('recent', withLines)
        : [];
      const trace = url.searchParams.get('trace');
      const all = [...ended, ...(await deps.connections('connections', withLines))];
      const connections = trace === null ? all : all.filter(({ traceId }) => traceId === trace);
      await sendTexts(response, 'application/json', connectionTexts(connections));
    });
    admin.route('GET', '/certificates', (_request, response) =>
      sendJson(response, 200, { certificates: deps.certificates() }),
    );
    for (const [path, { handle }] of this.#admin.paths) {
      if (path !== '/quitquitquit') admin.route('*', path, handle);
    }
    admin.route('GET', '/ports', (_request, response) => sendJson(response, 200, this.ports));
    admin.route('GET', '/stats', async (_request, response) =>
      sendText(response, 200, await renderStats(this.#stats)),
    );
  }

  /** Leaves the standard ports to another process and moves to other ports. */
  async yield(): Promise<void> {
    await Promise.all(Object.values(this.#servers).map((server) => server.yield()));
  }

  /** Stops listening. Idempotent. */
  async close(): Promise<void> {
    await Promise.all(Object.values(this.#servers).map((server) => server.close()));
  }
}

/** Yields `{"connections":[…]}` in texts of some hundred connections. */
async function* connectionTexts(connections: readonly ConnectionRecord[]): AsyncGenerator<string> {
  yield '{"connections":[';
  for (let start = 0; start < connections.length; start += DUMP_OBJECTS_PER_MESSAGE) {
    const part = connections.slice(start, start + DUMP_OBJECTS_PER_MESSAGE);
    yield `${start === 0 ? '' : ','}${JSON.stringify(part).slice(1, -1)}`;
    await turn();
  }
  yield ']}\n';
}
