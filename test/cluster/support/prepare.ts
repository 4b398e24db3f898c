/** Builds all that a cluster is made of. */
import { helmProgram } from '../../kubernetes/support/helm.ts';
import type { TeardownOwner } from '../../support/actor-context.ts';
import { removeLeftovers } from '../../support/leftovers.ts';
import { weftArchive } from '../../support/weft-image.ts';
import { startCluster } from './cluster.ts';
import type { TestCluster } from './cluster.ts';
import { clusterPrograms } from './programs.ts';
import { clusterUnavailable } from './unavailable.ts';

/** Paths and the start of a cluster whose programs are built. */
export interface Preparation {
  /** Path of Helm. */
  readonly helm: string;
  /** Path of the image's archive. */
  readonly archive: string;
  /** Starts a cluster whose nodes hold the images of `images`, an archive; of {@link archive} when left out. */
  readonly start: (owner: TeardownOwner, images?: string) => Promise<TestCluster>;
}

/** Prepares a cluster. `missing` says why there is none. */
export async function prepareCluster(): Promise<Preparation | { readonly missing: string }> {
  const missing = clusterUnavailable();
  if (missing !== null) return { missing };
  removeLeftovers();
  const programs = await clusterPrograms();
  if ('missing' in programs) return programs;
  const helm = await helmProgram();
  if ('missing' in helm) return helm;
  const archive = await weftArchive();
  if ('missing' in archive) return archive;
  return {
    helm: helm.path,
    archive: archive.path,
    start: (owner, images = archive.path) => startCluster(owner, programs, images),
  };
}
