/** Reads the folder of CNI configurations, as far as a container runtime would. */
import { lstat, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { ifExists, readIfPresent } from '../../../lib/files/atomic-file.ts';
import { isCopy, isNetworkFile, readNetworkList } from './conflist.ts';
import type { NetworkList } from './conflist.ts';
import { MAX_NETWORK_FILE_BYTES } from './limits.ts';

/** The files of the runtime's folder. */
export interface NetworkFiles {
  /** The text of each file by its name. */
  readonly texts: ReadonlyMap<string, string>;
  /** Names that cannot be read, and why. */
  readonly unread: ReadonlyMap<string, string>;
}

/** Reads the files that the runtime would load. Rejects when the folder cannot be listed. */
export async function readNetworkFiles(netDir: string): Promise<NetworkFiles> {
  const texts = new Map<string, string>();
  const unread = new Map<string, string>();
  for (const name of (await readdir(netDir)).filter(isNetworkFile)) {
    const path = join(netDir, name);
    try {
      // A file may be gone meanwhile; a link is still there without its target, which the host may have.
      const status = (await ifExists(stat(path))) ?? (await ifExists(lstat(path)));
      if (status === null || status.isDirectory()) continue;
      // A pipe would never end.
      if (!status.isFile()) unread.set(name, 'it is no regular file, and no link to one');
      else if (status.size > MAX_NETWORK_FILE_BYTES) {
        unread.set(name, `it is larger than ${MAX_NETWORK_FILE_BYTES} bytes`);
      } else {
        const text = await readIfPresent(path);
        if (text !== null) texts.set(name, text);
      }
    } catch (error) {
      unread.set(name, errorText(error));
    }
  }
  return { texts, unread };
}

/** Reads a file and uses its list. Returns null for a file that no runtime would load. */
export function tryRead<T>(file: string, text: string, use: (list: NetworkList) => T): T | null {
  try {
    return use(readNetworkList(file, text));
  } catch (error) {
    // Runtimes ignore the file, and so does a removal.
    if (error instanceof MeshError && error.code === 'CONFIG_INVALID') return null;
    throw error;
  }
}

/** Returns the names of Weft's own lists besides `ownList`, which agents with other settings have made. */
export function formerLists(texts: NetworkFiles['texts'], ownList: string | null): string[] {
  return [...texts]
    .filter(([file, text]) => file !== ownList && tryRead(file, text, isCopy) === true)
    .map(([file]) => file);
}
