/** Reads manifests: YAML documents from files, directories or standard input. */
import { readFile, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { LineCounter, parseAllDocuments } from 'yaml';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';

/** One document and its source. `index` counts the documents of the source from 0. */
export interface ManifestDocument {
  readonly source: string;
  readonly index: number;
  readonly object: unknown;
}

/** Largest source; a mesh of 100,000 pods stays below it. */
const SOURCE_LIMIT_BYTES = 256 * 1024 * 1024;
/** Bounds the expansion of aliases, so that a small file cannot fill the memory. */
const ALIAS_LIMIT = 1_000;

/**
 * The documents of a file, of all `*.yaml`, `*.yml` and `*.json` files directly in a directory (by name), or of
 * `input` when `path` is `-`. A `List` object stands for its items. Throws MANIFEST_INVALID naming source,
 * document and line.
 */
export async function readManifests(
  path: string,
  input: () => Promise<string>,
): Promise<ManifestDocument[]> {
  if (path === '-') return parseManifests('standard input', await input());
  const files = await manifestFiles(path);
  const documents: ManifestDocument[] = [];
  for (const file of files) documents.push(...parseManifests(file, await readSource(file)));
  if (documents.length === 0) {
    throw new MeshError('MANIFEST_INVALID', `${path}: holds no manifests`);
  }
  return documents;
}

async function manifestFiles(path: string): Promise<string[]> {
  try {
    if (!(await stat(path)).isDirectory()) return [path];
    const names = await readdir(path);
    return names
      .filter((name) => /\.(?:ya?ml|json)$/.test(name))
      .sort()
      .map((name) => join(path, name));
  } catch (error) {
    throw new MeshError('MANIFEST_INVALID', `${path}: ${errorText(error)}`, { cause: error });
  }
}

async function readSource(file: string): Promise<string> {
  try {
    const { size } = await stat(file);
    if (size > SOURCE_LIMIT_BYTES) throw new Error(`is larger than ${SOURCE_LIMIT_BYTES} bytes`);
    return await readFile(file, 'utf8');
  } catch (error) {
    throw new MeshError('MANIFEST_INVALID', `${file}: ${errorText(error)}`, { cause: error });
  }
}

/** The documents of one text; empty ones are skipped. Throws MANIFEST_INVALID. */
export function parseManifests(source: string, text: string): ManifestDocument[] {
  const lineCounter = new LineCounter();
  const parsed = parseAllDocuments(text, { lineCounter, prettyErrors: false });
  const documents: ManifestDocument[] = [];
  // For an empty stream the parser returns an object of another kind instead of a list.
  if (!Array.isArray(parsed)) return documents;
  for (const [index, document] of parsed.entries()) {
    const problem = document.errors[0];
    if (problem !== undefined) {
      const { line, col } = lineCounter.linePos(problem.pos[0]);
      throw invalid(source, index, `line ${line}, column ${col}: ${problem.message}`);
    }
    let object: unknown;
    try {
      object = document.toJS({ maxAliasCount: ALIAS_LIMIT });
    } catch (error) {
      throw invalid(source, index, errorText(error));
    }
    if (object === null || object === undefined) continue;
    for (const item of itemsOf(object)) documents.push({ source, index, object: item });
  }
  return documents;
}

function itemsOf(object: unknown): readonly unknown[] {
  const list = object as { kind?: unknown; items?: unknown };
  return list.kind === 'List' && Array.isArray(list.items) ? list.items : [object];
}

function invalid(source: string, index: number, reason: string): MeshError {
  return new MeshError('MANIFEST_INVALID', `${source}: document ${index}: ${reason}`);
}
