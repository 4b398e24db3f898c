/**
 * Messages between two listener threads of one process, on a port between them, when a connection goes from a pod of
 * one to a pod of the other. Either asks the other; the ids of a question are the asker's.
 */
import type { WireError } from '../../../lib/errors/mesh-error.ts';
import type { RefuseStatus } from '../../../lib/hbone/engine.ts';
import type { Endpoint } from '../../../lib/net/socket.ts';

/** A connection that would be a CONNECT to the pod's tunnel port, were that in another process. */
export interface SameNodeRequest {
  /** As {@link podName}. */
  readonly pod: string;
  /** The workload that the asker believes the pod to be. */
  readonly workloadUid: string;
  readonly authority: string;
  readonly headers: Readonly<Record<string, string>>;
  /** The client, under an address of its own workload. */
  readonly source: Endpoint;
  /** The address that a tunnel would have been dialled at. */
  readonly dialled: Endpoint;
  /** The client's identity, for which the asker holds a valid certificate. */
  readonly identity: string;
  /** Identities the asker accepts of the destination. */
  readonly expectedIdentities: readonly string[];
}

/** How a connection ended. */
export interface SameNodeEnd {
  readonly counts: {
    readonly fromA: number;
    readonly fromB: number;
    /** Epoch milliseconds. */
    readonly firstFromBAt: number | null;
  };
  readonly error: WireError | null;
}

/** Asker → asked. */
export type AskerMessage =
  | { readonly type: 'connect'; readonly id: number; readonly request: SameNodeRequest }
  /** Nobody wants the answer any more. */
  | { readonly type: 'cancel'; readonly id: number }
  /** The descriptor of the answer has been duplicated and joined; `splice` counts and aborts it. */
  | { readonly type: 'joined'; readonly id: number; readonly splice: number }
  /** The descriptor of the answer is not used. */
  | { readonly type: 'dropped'; readonly id: number }
  | { readonly type: 'ended'; readonly id: number; readonly end: SameNodeEnd };

/** Asked → asker. */
export type AskedMessage =
  /** Pods this thread serves, besides those it has told of. */
  | { readonly type: 'serving'; readonly pods: readonly string[] }
  | { readonly type: 'gone'; readonly pod: string }
  /**
   * The application is connected. `fd` is the asked thread's own until it hears `joined` or `dropped`: a number that
   * crosses must not come to mean another file meanwhile.
   */
  | {
      readonly type: 'answer';
      readonly id: number;
      readonly fd: number;
      readonly headers: Readonly<Record<string, string>>;
      /** Bytes that go to the application before the client's own. */
      readonly head: Uint8Array | null;
    }
  /** The application took the connection and closed it at once. */
  | { readonly type: 'closed'; readonly id: number }
  /** The certificate behind the answer is no longer valid. */
  | { readonly type: 'revoked'; readonly id: number; readonly error: WireError }
  /** The status that the tunnel would have answered with. */
  | { readonly type: 'refuse'; readonly id: number; readonly status: RefuseStatus }
  /** The error that the tunnel's handshake would have failed with. */
  | { readonly type: 'fail'; readonly id: number; readonly error: WireError }
  /** Not by this way; the tunnel may still do. */
  | { readonly type: 'decline'; readonly id: number; readonly reason: string };

export type NeighbourMessage = AskerMessage | AskedMessage;

/** How threads name a pod to each other: what the node agent and the mesh both know of it. */
export function podName(pod: {
  readonly namespace: string;
  readonly name: string;
  readonly serviceAccount: string;
}): string {
  return `${pod.namespace}/${pod.name}/${pod.serviceAccount}`;
}
