/** Removes the node's rules for kubelet's probes that an istio-cni left. */
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { istioHostProbes } from '../../../lib/redirect/istio-host-probes.ts';

/** The name of the agent's process. */
const ISTIO_CNI = 'install-cni';
/** The process has ended. */
const GONE: ReadonlySet<string> = new Set(['ENOENT', 'ESRCH']);

/** Collaborators of {@link IstioRemains}. */
export interface IstioRemainsDeps {
  /** A mount of the node's `/proc`. */
  readonly procDir: string;
  readonly log: Logger;
  /** Runs a script in the node's namespace. */
  readonly script: (script: string) => Promise<string>;
}

/**
 * Looks until nothing is left, and never again: a later istio-cni may own such rules. While one runs on the node, it keeps them,
 * because its pods need them.
 */
export class IstioRemains {
  readonly #deps: IstioRemainsDeps;
  #gone = false;
  /** The last event, which is not repeated. */
  #said = '';

  constructor(deps: IstioRemainsDeps) {
    this.#deps = deps;
  }

  /** Removes what is left. Call it once the own rules stand, so that no probe is without. A failure is logged; call it again later. */
  async clear(): Promise<void> {
    if (this.#gone) return;
    const { log, procDir, script } = this.#deps;
    try {
      const rules = (await script(istioHostProbes.list)).split('\n').filter((line) => line !== '');
      if (rules.length > 0) {
        // Processes that cannot be read may be one.
        if (await runs(procDir).catch(() => true)) {
          if (this.#news('kept')) log.warn({ rules }, 'host.istio-rules-kept');
          return;
        }
        await script(istioHostProbes.remove);
        log.info({ rules }, 'host.istio-rules-replaced');
      }
      this.#gone = true;
    } catch (error) {
      if (!(error instanceof MeshError)) throw error;
      const reason = error.message;
      if (this.#news(reason)) log.warn({ reason }, 'host.istio-rules-not-removed');
    }
  }

  #news(event: string): boolean {
    if (this.#said === event) return false;
    this.#said = event;
    return true;
  }
}

/** Returns whether an istio-cni runs on the node. Rejects with the file system's error. */
async function runs(procDir: string): Promise<boolean> {
  for (const name of await readdir(procDir)) {
    if (/^\d+$/.test(name) && (await commandOf(join(procDir, name))) === ISTIO_CNI) return true;
  }
  return false;
}

/** Returns the name of a process; null when it has ended. */
async function commandOf(dir: string): Promise<string | null> {
  try {
    return (await readFile(join(dir, 'comm'), 'utf8')).trim();
  } catch (error) {
    if (error instanceof Error && 'code' in error && GONE.has(String(error.code))) return null;
    throw error;
  }
}
