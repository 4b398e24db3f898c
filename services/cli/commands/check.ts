import { readFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { installedPath } from '../../../lib/files/installation.ts';
import {
  definitionLines,
  installRightLines,
  namespaceLines,
  nodeLines,
  serverLines,
} from '../check/before.ts';
import {
  readRightLines,
  releaseLines,
  releaseOf,
  replacesZtunnel,
  webhookLines,
} from '../check/after.ts';
import { readFacts } from '../check/facts.ts';
import { checkLines, judged } from '../check/line.ts';
import type { CheckLine } from '../check/line.ts';
import { istioLines, otherMeshLines } from '../check/meshes.ts';
import { openCluster } from '../cluster/access.ts';
import { EXIT_FAILED, EXIT_UNKNOWN } from '../failure.ts';
import { clusterOptions, outputOption, writeResult } from '../output.ts';
import type { CommonOptions } from '../output.ts';

const HELP = `
Before an installation it judges the cluster, after it the release too. Exit status: 0 nothing failed, 1 something
failed, 3 nothing failed and something could not be judged.`;

interface CheckOptions extends CommonOptions {
  readonly replaceZtunnel?: boolean;
}

/** Adds `weft check`. */
export function register(command: Command): void {
  command
    .option('--replace-ztunnel', 'for an installation in the place of ztunnel')
    .addOption(outputOption())
    .addHelpText('after', HELP);
  for (const option of clusterOptions()) command.addOption(option);
  command.action(check);
}

async function check(options: CheckOptions): Promise<void> {
  const lines = await judge(options);
  await writeResult(options, lines, checkLines(lines));
  if (lines.some(({ status }) => status === 'failed')) process.exitCode = EXIT_FAILED;
  else if (lines.some(({ status }) => status === 'unknown')) process.exitCode = EXIT_UNKNOWN;
}

async function judge(options: CheckOptions): Promise<readonly CheckLine[]> {
  const access = await openCluster(options);
  try {
    const facts = await readFacts(access);
    const release = releaseOf(facts);
    const replaces =
      options.replaceZtunnel === true || (release !== null && replacesZtunnel(release));
    return [
      ...serverLines(facts),
      ...nodeLines(facts),
      ...(release === null ? installRightLines(facts) : readRightLines(facts)),
      ...definitionLines(facts, release !== null),
      ...namespaceLines(facts),
      ...(replaces ? istioLines(facts) : otherMeshLines(facts)),
      ...judged('release', facts.own, () => []),
      ...(release === null ? [] : releaseLines(release, access.namespace, await ownVersion())),
      ...(release === null || replaces ? [] : webhookLines(facts)),
    ];
  } finally {
    access.client.close();
  }
}

async function ownVersion(): Promise<string> {
  const text = await readFile(installedPath('package.json'), 'utf8');
  return (JSON.parse(text) as { readonly version: string }).version;
}
