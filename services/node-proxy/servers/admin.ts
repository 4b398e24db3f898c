import { sendJson, sendText } from '../../../lib/actor/admin-routes.ts';
import type { AdminHandler } from '../../../lib/actor/admin-routes.ts';
import { fromLoggerLevel, parseLoggingChange, toLoggerLevel } from './log-filter.ts';

/** What the admin server shows and does. */
export interface AdminActions {
  configDump(): Promise<object>;
  logLevel(): string;
  setLogLevel(level: string): void;
  requestShutdown(why: string): void;
}

const LOGGING_HELP =
  'use POST: /logging shows the level, /logging?level=<off|error|warn|info|debug|trace> sets it, /logging?reset goes back\n';

const PAGE = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>node-proxy</title></head>
<body><h1>node-proxy</h1><ul>
<li><a href="/config_dump">/config_dump</a>: the state of this proxy</li>
<li>POST /logging: the log level, and ?level= to change it</li>
<li>POST /quitquitquit: drain and stop</li>
</ul></body></html>
`;

/** Port 15000, on localhost only (spec/observability.md §4). */
export function adminHandler(actions: AdminActions): AdminHandler {
  const initial = fromLoggerLevel(actions.logLevel());
  return async (request, response, url) => {
    switch (url.pathname) {
      case '/':
        response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' });
        response.end(PAGE);
        break;
      case '/config_dump':
        sendJson(response, 200, await actions.configDump());
        break;
      case '/logging': {
        if (request.method !== 'POST') {
          sendText(response, 405, LOGGING_HELP);
          break;
        }
        const change = parseLoggingChange(url.searchParams, initial);
        if (!change.ok) {
          sendText(response, 400, `${change.reason}\n`);
          break;
        }
        if (change.level !== null) actions.setLogLevel(toLoggerLevel(change.level));
        sendText(response, 200, `current log level is ${fromLoggerLevel(actions.logLevel())}\n`);
        break;
      }
      case '/quitquitquit':
        if (request.method !== 'POST') {
          sendText(response, 405, 'use POST\n');
          break;
        }
        sendText(response, 200, 'shutdown now\n');
        actions.requestShutdown('quitquitquit');
        break;
      default:
        sendText(response, 404, 'not found\n');
    }
  };
}
