import type { MeshError } from '../errors/mesh-error.ts';

/** The reason of a request, most urgent first: a connection waits, a renewal is due, a pod was just seen. */
export type Urgency = 'realTime' | 'renewal' | 'warmUp';

/** Smaller is more urgent. */
export const URGENCY_RANK: Readonly<Record<Urgency, number>> = {
  realTime: 0,
  renewal: 1,
  warmUp: 2,
};

/** Gets certificates signed. It hides the queue and the CA from the certificate manager. */
export interface SigningPort {
  /**
   * Resolves with the CA's unchecked answer: leaf, intermediates, roots last. Retries by itself and calls `onFailure` for
   * each failure. Rejects with a MeshError when it gives up, and with the signal's reason when `signal` aborts.
   */
  request(
    identity: string,
    csrPem: string,
    urgency: Urgency,
    options: { readonly signal: AbortSignal; readonly onFailure: (error: MeshError) => void },
  ): Promise<readonly string[]>;
  /** Makes the identity's request more urgent; does nothing without a request. */
  raise(identity: string, urgency: Urgency): void;
  /** Tries again now if the identity's request waits for its next attempt; does nothing otherwise. */
  hasten(identity: string): void;
}
