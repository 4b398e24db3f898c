/** Istio's programs and charts, from its Go module, and the ztunnel that the environment names. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { processEnvironment } from '../../../lib/config/env.ts';
import { ISTIOD_TAGS } from '../../interop/support/istiod.ts';
import { goProgram } from '../../interop/support/go.ts';
import { ISTIO_CNI_FOLDER, istioCniPrograms } from '../../interop/support/istio-cni.ts';
import type { IstioCniPrograms } from '../../interop/support/istio-cni.ts';
import { goFailure, runGo } from '../../support/go-program.ts';

/** A cold build compiles most of Istio: nine minutes of one core. */
const BUILD_TIMEOUT_MS = 900_000;
const MODULE = 'istio.io/istio';

/** Paths of the programs. */
export interface IstioPrograms extends IstioCniPrograms {
  readonly istiod: string;
  /** Null where `WEFT_ZTUNNEL` names none. */
  readonly ztunnel: string | null;
  /** The folder of the charts. */
  readonly charts: string;
}

/** Builds what is not built yet. `missing` says why there is no Istio. */
export async function istioPrograms(): Promise<IstioPrograms | { readonly missing: string }> {
  const istiod = await goProgram('istiod', { tags: ISTIOD_TAGS, timeoutMs: BUILD_TIMEOUT_MS });
  if ('missing' in istiod) return istiod;
  const cni = await istioCniPrograms();
  if ('missing' in cni) return cni;
  const ztunnel = processEnvironment()['WEFT_ZTUNNEL'] ?? null;
  if (ztunnel !== null && !existsSync(ztunnel)) {
    throw new Error(`WEFT_ZTUNNEL names ${ztunnel}, which does not exist`);
  }
  try {
    const folder = await runGo(
      ['list', '-m', '-mod=readonly', '-f', '{{.Dir}}', MODULE],
      ISTIO_CNI_FOLDER,
      BUILD_TIMEOUT_MS,
    );
    return {
      istiod: istiod.path,
      ...cni,
      ztunnel,
      charts: join(folder.trim(), 'manifests/charts'),
    };
  } catch (error) {
    return { missing: goFailure("Istio's charts", error) };
  }
}
