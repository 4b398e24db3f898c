import { randomBytes } from 'node:crypto';
import { chmod, mkdir, open, readFile, readdir, rename, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';

const TEMPORARY = /^[0-9a-f]{12}$/;

/** Returns a fresh name beside a path, from which a rename replaces what is there in one step. */
export function temporaryName(path: string): string {
  return `${path}.${randomBytes(6).toString('hex')}`;
}

/** Removes what killed writers of the path have left under {@link temporaryName}. For a path with a single writer, between its writes. */
export async function removeTemporaries(path: string): Promise<void> {
  const prefix = `${basename(path)}.`;
  for (const name of (await ifExists(readdir(dirname(path)))) ?? []) {
    if (!name.startsWith(prefix) || !TEMPORARY.test(name.slice(prefix.length))) continue;
    await rm(join(dirname(path), name), { recursive: true, force: true });
  }
}

/**
 * Replaces a file in one step: readers see the old content or the new one, also after a crash. Makes a missing folder,
 * which only its owner may enter unless others may read the file. `mode` applies from the first byte on.
 */
export async function replaceFile(path: string, content: string, mode: number): Promise<void> {
  const folderMode = (mode & 0o044) === 0 ? 0o700 : 0o755;
  await mkdir(dirname(path), { recursive: true, mode: folderMode });
  const temporary = temporaryName(path);
  try {
    const file = await open(temporary, 'wx', mode);
    try {
      await file.writeFile(content);
      // The umask may have taken bits away.
      await chmod(temporary, mode);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

/** Returns the content of a file; null when the file does not exist. Throws for other failures. */
export function readIfPresent(path: string): Promise<string | null> {
  return ifExists(readFile(path, 'utf8'));
}

/** Settles like `access`, with null where the file does not exist. */
export async function ifExists<T>(access: Promise<T>): Promise<T | null> {
  try {
    return await access;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null;
    throw error;
  }
}
