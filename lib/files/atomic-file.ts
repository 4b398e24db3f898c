import { randomBytes } from 'node:crypto';
import { chmod, mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';

/**
 * Replaces a file in one step: readers see the old content or the new one, and after a crash one of the two is
 * there. Makes the folder when it is missing, for its owner only unless others may read the file. `mode` holds
 * from the first byte on.
 */
export async function replaceFile(path: string, content: string, mode: number): Promise<void> {
  const folderMode = (mode & 0o044) === 0 ? 0o700 : 0o755;
  await mkdir(dirname(path), { recursive: true, mode: folderMode });
  const temporary = `${path}.${randomBytes(6).toString('hex')}`;
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

/** The content of a file, null when there is none. Other failures are thrown. */
export async function readIfPresent(path: string): Promise<string | null> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null;
    throw error;
  }
}
