/** The shared parts of `weft apply` and `weft delete`: options, documents, and object names. */
import type { Command } from 'commander';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { ManifestApi } from '../local-mesh/manifest-api.ts';
import type { AppliedObject } from '../local-mesh/manifest-api.ts';
import { readManifests } from '../local-mesh/manifests.ts';
import type { ManifestDocument } from '../local-mesh/manifests.ts';
import { openMesh } from './running-mesh.ts';
import { meshOption } from './output.ts';

/** Most bytes of standard input; more than the manifests of any mesh. */
const INPUT_LIMIT_BYTES = 256 * 1024 * 1024;

/** Options of both commands. */
export interface ManifestOptions {
  readonly filename: readonly string[];
  readonly mesh?: string;
}

/** Adds the options of both commands. */
export function manifestOptions(command: Command): Command {
  return command
    .requiredOption(
      '-f, --filename <path>',
      'YAML or JSON file, folder of such files, or - for standard input; may be repeated',
      (path: string, before: readonly string[] | undefined) => [...(before ?? []), path],
    )
    .addOption(meshOption());
}

/** Reads the documents that the options name; returns them with the control plane's client. */
export async function openManifests(
  options: ManifestOptions,
): Promise<{ readonly api: ManifestApi; readonly documents: readonly ManifestDocument[] }> {
  const documents: ManifestDocument[] = [];
  for (const path of options.filename) {
    documents.push(...(await readManifests(path, () => readInput(process.stdin))));
  }
  if (documents.length === 0) {
    throw new MeshError('MANIFEST_INVALID', 'standard input: holds no manifests');
  }
  const { paths } = await openMesh(options.mesh);
  return { api: new ManifestApi(paths.controlSocket), documents };
}

/** `pod/demo/web-1`; `namespace/demo` for an object without a namespace. */
export function objectName({ kind, namespace, name }: AppliedObject): string {
  const where =
    namespace === undefined || namespace === null || namespace === '' ? [] : [namespace];
  return [kind.toLowerCase(), ...where, name].join('/');
}

/** Reads a text stream to its end. Throws MANIFEST_INVALID beyond the limit. */
export async function readInput(
  stream: AsyncIterable<unknown>,
  limitBytes = INPUT_LIMIT_BYTES,
): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of stream) {
    const bytes = Buffer.from(chunk as Uint8Array);
    size += bytes.length;
    if (size > limitBytes) {
      throw new MeshError('MANIFEST_INVALID', `standard input: is larger than ${limitBytes} bytes`);
    }
    chunks.push(bytes);
  }
  return Buffer.concat(chunks).toString('utf8');
}
