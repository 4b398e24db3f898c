import type { MeshError } from '../errors/mesh-error.ts';

/** Why a certificate is wanted, most urgent first: a connection waits, one is due, a pod was just seen. */
export type Urgency = 'realTime' | 'renewal' | 'warmUp';

/** Smaller is more urgent. */
export const URGENCY_RANK: Readonly<Record<Urgency, number>> = {
  realTime: 0,
  renewal: 1,
  warmUp: 2,
};

/** Gets certificates signed; what lies behind it (a queue, a CA) is not the manager's business. */
export interface SigningPort {
  /**
   * Resolves with the CA's answer as it is: leaf, intermediates, roots last. Tries again by itself, telling each
   * failure to `onFailure`; rejects with a MeshError when it gives up, and with the signal's reason when
   * `signal` aborts.
   */
  request(
    identity: string,
    csrPem: string,
    urgency: Urgency,
    options: { readonly signal: AbortSignal; readonly onFailure: (error: MeshError) => void },
  ): Promise<readonly string[]>;
  /** Makes the request under way for this identity more urgent; no effect without one. */
  raise(identity: string, urgency: Urgency): void;
}
