import type { Command } from 'commander';
import { askEachProxy } from '../proxy-settings.ts';
import { outputOption, readsMesh, writeResult } from '../output.ts';
import type { CommonOptions } from '../output.ts';

interface AccessLogOptions extends CommonOptions {
  readonly rate?: string;
  readonly reset?: boolean;
}

/** Answer of a proxy. */
interface AccessLine {
  readonly rules: string;
  readonly linesPerSecond: number;
}

/** Adds `weft access-log`. */
export function register(command: Command): void {
  readsMesh(command)
    .argument(
      '[rules]',
      'all, errors or a share such as 10%, and <namespace>= one of them, separated by commas; failures are always written',
    )
    .option('--rate <lines>', 'most lines a second of each thread; 0 = all')
    .option('--reset', 'go back to the settings of the start first')
    .option('--node <node>', 'only the proxies of this node')
    .addOption(outputOption())
    .action(accessLog);
}

async function accessLog(rules: string | undefined, options: AccessLogOptions): Promise<void> {
  const query = new URLSearchParams();
  if (options.reset === true) query.set('reset', '');
  if (rules !== undefined) query.set('rules', rules);
  if (options.rate !== undefined) query.set('rate', options.rate);
  const method = query.size === 0 ? 'GET' : 'POST';
  const answers = await askEachProxy(options, method, `/node-proxy/access_log?${query.toString()}`);
  const lines = answers.map(({ node, body }) => ({ node, ...(JSON.parse(body) as AccessLine) }));
  await writeResult(options, lines, lines.map(lineText));
}

function lineText({ node, rules, linesPerSecond }: AccessLine & { readonly node: string }): string {
  const rate = linesPerSecond === 0 ? '' : `, at most ${linesPerSecond} lines a second and thread`;
  return `${node}: ${rules}${rate}`;
}
