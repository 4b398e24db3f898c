import type { Command } from 'commander';
import { askEachProxy } from '../proxy-settings.ts';
import { readsMesh, write } from '../output.ts';
import type { CommonOptions } from '../output.ts';

interface LogLevelOptions extends CommonOptions {
  readonly reset?: boolean;
}

/** Adds `weft log-level`. */
export function register(command: Command): void {
  readsMesh(command)
    .argument(
      '[levels]',
      'added to those in force: <level> or <target>=<level>, separated by commas',
    )
    .option('--reset', 'go back to the levels of the start first')
    .option('--node <node>', 'only the proxies of this node')
    .action(logLevel);
}

async function logLevel(levels: string | undefined, options: LogLevelOptions): Promise<void> {
  const query = new URLSearchParams();
  if (options.reset === true) query.set('reset', '');
  if (levels !== undefined) query.set('level', levels);
  const path = `/node-proxy/logging?${query.toString()}`;
  for (const { node, body } of await askEachProxy(options, 'POST', path)) {
    await write(`${node}: ${body.trim().replace(/^current log level is /, '')}\n`);
  }
}
