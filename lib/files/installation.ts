/**
 * Finds the files of the installation. Actors run the programs that infra/build.ts makes of the sources (`dist/<digest>/`); tests also
 * run the sources as they are.
 */
import { findPackageJSON } from 'node:module';
import { dirname, join, relative, sep } from 'node:path';
import { present } from '../errors/assert.ts';

/** The folder of package.json. */
const ROOT = dirname(present(findPackageJSON('.', import.meta.url), 'package.json lies above'));
const [top = '', digest = ''] = relative(ROOT, import.meta.filename).split(sep);
/** The folder of the programs that this process runs; null when it runs the sources. */
const PROGRAMS = top === 'dist' ? join(ROOT, top, digest) : null;

/** Returns the absolute path of a file or folder that is named from the root. */
export function installedPath(path: string): string {
  return join(ROOT, path);
}

/** Returns the absolute path from which Node runs a source file that is named from the root, with the same form of code as the caller's. */
export function programPath(source: string): string {
  if (PROGRAMS === null) return join(ROOT, source);
  return join(PROGRAMS, source.replace(/\.ts$/, '.js'));
}
