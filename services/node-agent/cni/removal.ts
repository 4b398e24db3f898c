/** Removes the CNI plugin from the node. */
import { realpath, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import { ifExists } from '../../../lib/files/atomic-file.ts';
import { takeOut } from './chained-list.ts';
import { PLUGIN, withoutPlugin } from './conflist.ts';
import { HELPER_LINK, removeHelper } from './helper-files.ts';
import { formerLists, readNetworkFiles, tryRead } from './network-files.ts';
import type { NetworkFiles } from './network-files.ts';

/** The name of the kubeconfig in the run directory. */
export const KUBECONFIG_NAME = 'weft-cni-kubeconfig';

/** The folders of an installation, and the name of its own list; null where it has none. */
export interface InstallPlace {
  readonly netDir: string;
  readonly binDir: string;
  readonly runDir: string;
  readonly ownList: string | null;
}

/**
 * Removes the lists or Weft's entries in them, then the programs and the kubeconfig. A failure does not end the work: rejects at its
 * end with one error that names each file that stays. The programs stay as long as a list does: a runtime starts no pod at all
 * without a program that its list names.
 */
export async function removeInstallation(place: InstallPlace): Promise<void> {
  const { netDir, binDir, runDir } = place;
  const failures = await removeLists(place);
  if (failures.length > 0) {
    failures.push(`${join(binDir, PLUGIN)} stays for the lists of ${netDir}`);
  } else {
    const program = join(binDir, PLUGIN);
    const kubeconfig = join(runDir, KUBECONFIG_NAME);
    await attempt(failures, program, () => rm(program, { force: true }));
    await attempt(failures, kubeconfig, () => rm(kubeconfig, { force: true }));
    await attempt(failures, join(binDir, HELPER_LINK), () => removeHelper(binDir));
  }
  if (failures.length > 0) throw new Error(failures.join('; '));
}

/** Returns why lists stay. */
async function removeLists({ netDir, ownList }: InstallPlace): Promise<string[]> {
  const failures: string[] = [];
  if (ownList !== null) {
    const path = join(netDir, ownList);
    await attempt(failures, path, () => rm(path, { force: true }));
  }
  let texts: NetworkFiles['texts'] = new Map();
  await attempt(failures, netDir, async () => {
    texts = (await ifExists(readNetworkFiles(netDir)))?.texts ?? texts;
  });
  const former = formerLists(texts, ownList);
  for (const [file, text] of texts) {
    if (file === ownList) continue;
    const path = join(netDir, file);
    await attempt(failures, path, async () => {
      if (former.includes(file)) return rm(path, { force: true });
      const rest = tryRead(file, text, withoutPlugin);
      // Others may have removed the file since.
      const target = rest === null ? null : await ifExists(realpath(path));
      if (rest !== null && target !== null) await takeOut(target, rest);
    });
  }
  return failures;
}

async function attempt(failures: string[], path: string, work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    failures.push(`${path} stays: ${errorText(error)}`);
  }
}
