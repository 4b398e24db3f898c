import { readIfPresent } from '../../lib/files/atomic-file.ts';
import type { CaConfig } from './config.ts';
import { HolderFile } from './holder-file.ts';
import type { HolderStore } from './holders.ts';
import { folderFiles } from './plugged-authority.ts';
import type { PluggedDeps, PluggedFiles } from './plugged-authority.ts';
import { StateFolder } from './state-folder.ts';
import type { StateStore } from './state.ts';

/** Roots that nodes read already. */
export interface PublishedRoots {
  readonly where: string;
  readonly pem: string;
}

/** Where the CA keeps what must outlive its process. */
export interface CaStores {
  /** The certificate of another authority; null when the CA signs with its own root. */
  readonly plugged: PluggedFiles | null;
  /** The place where the certificate of another authority may appear; null where it is not looked for. */
  readonly pluggedLater: PluggedFiles | null;
  readonly state: StateStore;
  readonly holders: HolderStore;
  /** Null when the mesh has no roots yet. */
  published(): Promise<PublishedRoots | null>;
}

/** The stores in the CA's folder. */
export function folderStores(
  {
    stateDir,
    rootBundleFile,
    pluggedDir,
  }: Pick<CaConfig, 'stateDir' | 'rootBundleFile' | 'pluggedDir'>,
  deps: PluggedDeps,
): CaStores {
  return {
    plugged: pluggedDir === null ? null : folderFiles(pluggedDir, deps),
    pluggedLater: null,
    state: new StateFolder(stateDir, deps),
    holders: new HolderFile(stateDir),
    async published() {
      if (rootBundleFile === null) return null;
      const pem = await readIfPresent(rootBundleFile);
      return pem === null || pem.trim() === '' ? null : { where: rootBundleFile, pem };
    },
  };
}
