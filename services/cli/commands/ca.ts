import { readFile } from 'node:fs/promises';
import { Option } from 'commander';
import type { Command } from 'commander';
import { systemClock } from '../../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { replaceFile } from '../../../lib/files/atomic-file.ts';
import { isEnvironmentOfCa, openCa, requireOwnRoot } from '../ca-environment.ts';
import type { OpenedCa } from '../ca-environment.ts';
import { caStatusLines } from '../ca-status-lines.ts';
import type { CaStatus } from '../../ca/operations.ts';
import { askJson } from '../../local-mesh/unix-http.ts';
import { isCluster, withMesh } from '../open-mesh.ts';
import { meshOption, outputOption, readsMesh, write, writeResult } from '../output.ts';
import type { CommonOptions } from '../output.ts';

const HELP = `
On a cluster, status asks the CA. The other commands work on the CA's state, whether it runs or not: run them where the
CA runs, with its environment (kubectl exec deploy/weft-ca -- weft ca rotate), or name a local mesh.`;

interface RootOptions extends CommonOptions {
  readonly replaceRoot?: boolean;
}

/** Adds `weft ca`. */
export function register(ca: Command): void {
  ca.addHelpText('after', HELP);
  readsMesh(ca.command('status'))
    .description('roots, who does not trust them yet, and the rotation in progress')
    .addOption(outputOption())
    .action(status);
  ca.command('rotate')
    .description('replace the own root in steps that wait for all nodes')
    .option('--abandon', 'give up the rotation in progress, while the new root signs nothing')
    .addOption(
      new Option(
        '--skip-node <names...>',
        'no longer wait for these holders of certificates, which are gone for good',
      ).conflicts('abandon'),
    )
    .addOption(meshOption())
    .action(rotate);
  ca.command('backup')
    .description('copy the root with its private key')
    .argument('<file>', 'file to write (0600)')
    .addOption(meshOption())
    .action(backup);
  ca.command('restore')
    .description('bring a backup back')
    .argument('<file>', 'file that weft ca backup wrote')
    .option('--replace-root', 'even when nodes do not trust the root of the backup')
    .addOption(meshOption())
    .action(restore);
  ca.command('init')
    .description('make a root where there is none')
    .option(
      '--replace-root',
      'even when nodes trust another one: it cuts off all workloads at first',
    )
    .addOption(meshOption())
    .action(init);
}

async function status(options: CommonOptions): Promise<void> {
  const found = await readStatus(options);
  await writeResult(options, found, caStatusLines(found));
}

async function readStatus(options: CommonOptions): Promise<CaStatus> {
  if (!isEnvironmentOfCa() && (await isCluster(options))) {
    return withMesh(options, async ({ servers }) =>
      askJson<CaStatus>({ socket: await servers.one('ca', null), path: '/ca/report' }),
    );
  }
  using opened = await openCa(options.mesh);
  const { operations, config, stores } = opened;
  return operations.caStatus(config, stores, systemClock.now());
}

interface RotateOptions extends CommonOptions {
  readonly abandon?: boolean;
  readonly skipNode?: readonly string[];
}

async function rotate(options: RotateOptions): Promise<void> {
  using opened = await openOwn(options);
  const { operations, config, stores } = opened;
  if (options.abandon === true) {
    await operations.abandon(stores.state);
    await write('the rotation is given up; the former root stays\n');
    return;
  }
  const { skipNode } = options;
  if (skipNode !== undefined) {
    await operations.skip(stores, skipNode, systemClock.now());
    await write(
      `the rotation no longer waits for ${skipNode.join(', ')}: should they come back, they refuse all peers until they have read the new root\n`,
    );
    return;
  }
  await operations.rotate(stores.state, config, systemClock.now());
  await write('the rotation has begun; see: weft ca status\n');
}

async function backup(file: string, options: CommonOptions): Promise<void> {
  using opened = await openOwn(options);
  const { operations, stores } = opened;
  await replaceFile(file, await operations.backup(stores.state, systemClock.now()), 0o600);
  await write(`${file} holds the root and its private key: keep it secret\n`);
}

async function restore(file: string, options: RootOptions): Promise<void> {
  using opened = await openOwn(options);
  const { operations, stores } = opened;
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    throw new MeshError('CONFIG_INVALID', `${file}: ${errorText(error)}`, { cause: error });
  }
  await operations.restore(stores, text, choice(options));
  await write(`the root is back in ${stores.state.where}\n`);
}

async function init(options: RootOptions): Promise<void> {
  using opened = await openOwn(options);
  const { operations, config, stores } = opened;
  await operations.init(stores, config, choice(options));
  await write(`a new root is in ${stores.state.where}\n`);
}

function choice(options: RootOptions): { readonly replaceRoot: boolean; readonly nowMs: number } {
  return { replaceRoot: options.replaceRoot === true, nowMs: systemClock.now() };
}

async function openOwn(options: CommonOptions): Promise<OpenedCa> {
  const opened = await openCa(options.mesh);
  try {
    requireOwnRoot(opened.stores);
    return opened;
  } catch (error) {
    opened.close();
    throw error;
  }
}
