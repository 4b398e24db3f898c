import { once } from 'node:events';
import type { Command } from 'commander';
import { createLogger } from '../../../lib/log/logger.ts';
import { greetingServer, httpServer } from '../../local-mesh/sample-protocols.ts';
import { UsageError } from '../../../lib/errors/usage-error.ts';

/** Adds `weft sample`: the servers of the sample mesh's pods, as a process for containers. */
export function register(command: Command): void {
  command
    .argument('<name>', 'the name it answers with')
    .option('--http <port>', 'port of the HTTP server', '8080')
    .option('--greeting <port>', 'port of the server that speaks first')
    .action(sample);
}

async function sample(
  name: string,
  options: { readonly http: string; readonly greeting?: string },
): Promise<void> {
  const log = createLogger({ actor: 'sample' });
  const stopped = Promise.race([once(process, 'SIGTERM'), once(process, 'SIGINT')]);
  const http = httpServer(name).listen(portOf(options.http), '::');
  await once(http, 'listening');
  const greeting =
    options.greeting === undefined
      ? null
      : greetingServer(name).listen(portOf(options.greeting), '::');
  if (greeting !== null) await once(greeting, 'listening');
  log.info({ name, ...options }, 'sample.serving');
  await stopped;
  http.close();
  http.closeAllConnections();
  greeting?.close();
}

function portOf(text: string): number {
  const port = Number(text);
  if (!/^\d{1,5}$/.test(text) || port < 1 || port > 65_535) {
    throw new UsageError(`not a port: ${text}`);
  }
  return port;
}
