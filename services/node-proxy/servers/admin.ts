import type { IncomingMessage, ServerResponse } from 'node:http';
import { sendJson, sendText } from '../../../lib/http/answers.ts';
import type { HttpHandler } from '../../../lib/http/routes.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import type { AccessSettings } from '../../../lib/log/access-gate.ts';
import { MAX_CONFIG_DUMPS } from '../limits.ts';
import { accessLogChange, loggingChange } from './logging.ts';
import { PprofRoutes } from './pprof.ts';
import type { ProfiledThreads } from './pprof.ts';
import { sendTexts } from './stream-body.ts';

/** The log settings, which may change while the process runs. */
export interface LoggingControl {
  /** The filter in force now, and at the start. */
  readonly filter: string;
  readonly initialFilter: string;
  setFilter(filter: string): void;
  readonly accessLog: AccessSettings;
  readonly initialAccessLog: AccessSettings;
  setAccessLog(settings: AccessSettings): void;
}

/** Dependencies of the admin server. */
export interface AdminActions {
  configDump(): AsyncIterable<string>;
  readonly logging: LoggingControl;
  readonly profiled: ProfiledThreads;
  requestShutdown(why: string): void;
}

/** One path of the admin server. */
interface AdminPath {
  readonly says: string;
  readonly handle: HttpHandler;
}

const LOGGING_HELP = `usage: POST /logging                     shows the levels
       POST /logging?level=<level>       adds to them: off|error|warn|info|debug|trace, or <target>=<level>
       POST /logging?level=<level>,<target>=<level>,…
       POST /logging?reset[&level=<level>] goes back to those of the start first
`;

/** The paths of port 15000 (docs/spec/observability.md §4). The process's own admin server has them, too. */
export class AdminPaths {
  /** Handlers by path. */
  readonly paths: ReadonlyMap<string, AdminPath>;
  readonly #actions: AdminActions;
  #dumps = 0;

  constructor(actions: AdminActions) {
    this.#actions = actions;
    const pprof = new PprofRoutes(actions.profiled);
    this.paths = new Map<string, AdminPath>([
      ['/config_dump', { says: 'the state of this proxy', handle: (_, to) => this.#dump(to) }],
      ['/logging', { says: 'POST: log levels', handle: (...of) => this.#logging(...of) }],
      [
        '/access_log',
        { says: 'access lines; POST changes which', handle: (...of) => this.#accessLog(...of) },
      ],
      [
        '/quitquitquit',
        { says: 'POST: drain and stop', handle: (request, to) => this.#quit(request, to) },
      ],
      [
        '/debug/pprof/profile',
        {
          says: 'CPU profile, ?seconds=10&frequency=100',
          handle: (_, to, url) => pprof.cpu(to, url.searchParams),
        },
      ],
      ['/debug/pprof/heap', { says: 'heap profile', handle: (_, to) => pprof.heap(to) }],
      [
        '/debug/pprof/heap/profiling',
        {
          says: 'whether the heap is profiled, ?activate=true|false',
          handle: (_, to, url) => pprof.heapState(to, url.searchParams),
        },
      ],
    ]);
  }

  /** Answers a request: the dashboard on `/`, 404 for an unknown path. */
  readonly handler: HttpHandler = async (request, response, url) => {
    if (url.pathname === '/') {
      response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' });
      response.end(page(this.paths));
      return;
    }
    const path = this.paths.get(url.pathname);
    if (path === undefined) sendText(response, 404, 'not found\n');
    else await path.handle(request, response, url);
  };

  async #dump(response: ServerResponse): Promise<void> {
    if (this.#dumps >= MAX_CONFIG_DUMPS) {
      sendText(response, 503, `${MAX_CONFIG_DUMPS} dumps are being read already\n`);
      return;
    }
    this.#dumps += 1;
    try {
      await sendTexts(response, 'application/json', this.#actions.configDump());
    } finally {
      this.#dumps -= 1;
    }
  }

  #logging(request: IncomingMessage, response: ServerResponse, url: URL): void {
    const { logging } = this.#actions;
    if (request.method !== 'POST') {
      sendText(response, 405, LOGGING_HELP);
      return;
    }
    const filters = { current: logging.filter, initial: logging.initialFilter };
    let change: string | null;
    try {
      change = loggingChange(url.searchParams, filters);
    } catch (error) {
      sendText(response, 400, `invalid level: ${errorText(error)}\n${LOGGING_HELP}`);
      return;
    }
    if (change !== null) logging.setFilter(change);
    sendText(response, 200, `current log level is ${logging.filter}\n`);
  }

  #accessLog(request: IncomingMessage, response: ServerResponse, url: URL): void {
    const { logging } = this.#actions;
    if (request.method === 'POST') {
      const settings = { current: logging.accessLog, initial: logging.initialAccessLog };
      let change: AccessSettings | null;
      try {
        change = accessLogChange(url.searchParams, settings);
      } catch (error) {
        sendText(response, 400, `${errorText(error)}\n`);
        return;
      }
      if (change !== null) logging.setAccessLog(change);
    }
    sendJson(response, 200, logging.accessLog);
  }

  #quit(request: IncomingMessage, response: ServerResponse): void {
    if (request.method !== 'POST') {
      sendText(response, 405, 'use POST\n');
      return;
    }
    sendText(response, 200, 'shutdown now\n');
    this.#actions.requestShutdown('quitquitquit');
  }
}

function page(paths: ReadonlyMap<string, AdminPath>): string {
  const items = [...paths].map(
    ([path, { says }]) =>
      `<li><a href="${path}">${path}</a>: ${says.replaceAll('&', '&amp;')}</li>`,
  );
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>node-proxy</title></head>
<body><h1>node-proxy</h1><ul>
${items.join('\n')}
</ul></body></html>
`;
}
