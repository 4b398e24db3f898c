import { text } from 'node:stream/consumers';
import type { Command } from 'commander';
import { ManifestApi } from '../local/manifest-api.ts';
import type { AppliedObject } from '../local/manifest-api.ts';
import { readManifests } from '../local/manifests.ts';
import type { ManifestDocument } from '../local/manifests.ts';
import { meshPaths } from '../local/mesh-paths.ts';
import { requireMesh } from '../local/mesh-record.ts';
import type { CommandContext } from '../main.ts';
import { meshOption, print } from '../output.ts';

interface FileOptions {
  readonly filename: string[];
  readonly mesh?: string;
}

const KINDS =
  'Namespace, Pod, Service, ServiceAccount, ServiceEntry, WorkloadEntry, AuthorizationPolicy, PeerAuthentication';

/** `weft apply`. */
export function addApply(program: Command, context: CommandContext): void {
  fileCommand(program, 'apply', 'create or change objects of the running control plane').action(
    async (options: FileOptions) => {
      const api = await openApi(options, context);
      await print((await api.apply(await readAll(options))).map(renderLine).join(''));
    },
  );
}

/** `weft delete`. */
export function addDelete(program: Command, context: CommandContext): void {
  fileCommand(program, 'delete', 'delete objects of the running control plane').action(
    async (options: FileOptions) => {
      const api = await openApi(options, context);
      const { deleted, missing } = await api.delete(await readAll(options));
      const lines = [
        ...deleted.map((object) => renderLine({ ...object, result: 'deleted' })),
        ...missing.map((object) => renderLine({ ...object, result: 'not found' })),
      ];
      await print(lines.join(''));
    },
  );
}

function fileCommand(program: Command, name: string, description: string): Command {
  return program
    .command(name)
    .description(description)
    .requiredOption(
      '-f, --filename <path>',
      'manifests: a YAML or JSON file, a directory of them, or - for standard input; repeatable',
      (value: string, before: string[] | undefined) => [...(before ?? []), value],
    )
    .addOption(meshOption())
    .addHelpText(
      'after',
      `\nKinds: ${KINDS}.\nInvalid input is refused whole; every problem is named with file, document index (from 0), field path and reason.`,
    );
}

async function openApi(options: FileOptions, context: CommandContext): Promise<ManifestApi> {
  const paths = meshPaths(options.mesh, context.environment);
  await requireMesh(paths);
  return new ManifestApi(paths.controlSocket);
}

async function readAll(options: FileOptions): Promise<ManifestDocument[]> {
  const documents: ManifestDocument[] = [];
  for (const path of options.filename) {
    documents.push(...(await readManifests(path, () => text(process.stdin))));
  }
  return documents;
}

function renderLine(object: AppliedObject): string {
  const place = object.namespace ?? '';
  const name = place === '' ? object.name : `${place}/${object.name}`;
  return `${object.kind.toLowerCase()} ${name} ${object.result ?? ''}\n`;
}
