import { randomUUID } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { systemClock } from '../../../lib/clock/clock.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { readIfPresent } from '../../../lib/files/atomic-file.ts';
import { installedPath } from '../../../lib/files/installation.ts';
import { sbomOf } from '../sbom.ts';
import { write } from '../output.ts';

/** The list that infra/setup.sh writes with `npm sbom`. */
const NPM_PART = installedPath('.cache/npm.cdx.json');
const DPKG_STATUS = '/var/lib/dpkg/status';

/** Adds `weft sbom`. */
export function register(command: Command): void {
  command
    .option('-o, --output <file>', 'where to write it (default: standard output)')
    .action(sbom);
}

async function sbom({ output }: { readonly output?: string }): Promise<void> {
  const own = JSON.parse(await readFile(installedPath('package.json'), 'utf8')) as {
    name: string;
    version: string;
  };
  const document = sbomOf({
    ...own,
    timestamp: new Date(systemClock.now()).toISOString(),
    serial: randomUUID(),
    npm: await npmPart(),
    // Other distributions have no such file.
    dpkg: await readIfPresent(DPKG_STATUS),
    bundled: process.versions,
  });
  const text = `${JSON.stringify(document, null, 2)}\n`;
  if (output === undefined) await write(text);
  else await writeFile(output, text);
}

async function npmPart(): Promise<string> {
  const text = await readIfPresent(NPM_PART);
  if (text !== null) return text;
  throw new MeshError(
    'CONFIG_UNSUPPORTED',
    `${NPM_PART} is missing: sh infra/setup.sh has npm write it`,
  );
}
