import type { Clock } from '../../lib/clock/clock.ts';
import { readIfPresent } from '../../lib/files/atomic-file.ts';
import type { Logger } from '../../lib/log/logger.ts';
import type { CaConfig } from './config.ts';
import { HolderFile } from './holder-file.ts';
import type { HolderStore } from './holders.ts';
import { StateFolder } from './state-folder.ts';
import type { StateStore } from './state.ts';

/** Roots that nodes read already. */
export interface PublishedRoots {
  readonly where: string;
  readonly pem: string;
}

/** Where the CA keeps what must outlive its process. */
export interface CaStores {
  readonly state: StateStore;
  readonly holders: HolderStore;
  /** Null when the mesh has no roots yet. */
  published(): Promise<PublishedRoots | null>;
}

/** The stores in the CA's folder. */
export function folderStores(
  { stateDir, rootBundleFile }: Pick<CaConfig, 'stateDir' | 'rootBundleFile'>,
  deps: { readonly clock: Clock; readonly log: Pick<Logger, 'debug' | 'warn'> },
): CaStores {
  return {
    state: new StateFolder(stateDir, deps),
    holders: new HolderFile(stateDir),
    async published() {
      if (rootBundleFile === null) return null;
      const pem = await readIfPresent(rootBundleFile);
      return pem === null || pem.trim() === '' ? null : { where: rootBundleFile, pem };
    },
  };
}
