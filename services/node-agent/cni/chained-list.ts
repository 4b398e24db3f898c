/** The list with Weft's entry that stands for the file of a single plugin, or is the primary's own. */
import { lstat, rename, rm, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { ifExists, readIfPresent, replaceFile } from '../../../lib/files/atomic-file.ts';
import { PLUGIN, hasEntry, listText } from './conflist.ts';
import { tryRead } from './network-files.ts';

const SAVED = '.weft-saved';
const SINGLES = ['.conf', '.json'] as const;

/** A list that is to get Weft's entry. */
export interface Target {
  readonly file: string;
  /** The text that `file` has; undefined where there is none, or it cannot be read. */
  readonly text: string | undefined;
  /** The name of the primary plugin's file: `file`, or that of a single plugin for which `file` stands. */
  readonly primary: string;
}

/** Rejects with CONFIG_INVALID when a write would replace a link, or a list of others: a list that Weft wrote has its entry. */
export async function checkTarget(
  netDir: string,
  { file, text = '', primary }: Target,
): Promise<void> {
  const status = await ifExists(lstat(join(netDir, file)));
  if (status === null) return;
  if (status.isSymbolicLink()) {
    throw invalid(
      `${file} is a symbolic link, which a file with an entry of ${PLUGIN} would replace`,
    );
  }
  if (file === primary || tryRead(file, text, hasEntry) === true) return;
  throw invalid(
    `${file} has no entry of ${PLUGIN}, and the list that stands for ${primary} would replace it`,
  );
}

function invalid(problem: string): MeshError {
  return new MeshError('CONFIG_INVALID', `${problem}: set ISTIO_OWNED_CNI_CONFIG=true`);
}

/** Renames a single plugin's file, so that runtimes do not take it before the list. */
export function saveSingle(path: string): Promise<void> {
  return rename(path, `${path}${SAVED}`);
}

/**
 * Takes Weft's entry out of the list at `path`; `rest` is the text without it. Where that is still the conversion of a single
 * plugin's file, the list goes and the file comes back. Any other list is newer than the saved file, which goes then.
 */
export async function takeOut(path: string, rest: string): Promise<void> {
  const singles = SINGLES.map((ending) => `${path.replace(/\.[^.]+$/, '')}${ending}`);
  let converted = false;
  for (const single of singles) {
    const now = await readIfPresent(single);
    const saved = await readIfPresent(`${single}${SAVED}`);
    const texts = [now, saved].filter((text) => text !== null);
    if (!texts.some((text) => tryRead(basename(single), text, listText) === rest)) continue;
    converted = true;
    // The primary plugin wrote the present file after the saved one.
    if (now === null) await rename(`${single}${SAVED}`, single);
  }
  // Others may have removed the list since.
  const status = await ifExists(stat(path));
  if (converted) await rm(path, { force: true });
  else if (status !== null) await replaceFile(path, rest, status.mode & 0o777);
  for (const single of singles) await rm(`${single}${SAVED}`, { force: true });
}
