/** Messages to the load's processes, and their answers; each message has one answer. */

/** A pod whose network a process uses. */
export interface LoadPod {
  readonly netns: string;
  readonly ip: string;
}

/** Tells a server process to listen in these pods. */
export interface ServeMessage {
  readonly type: 'serve';
  readonly pods: readonly LoadPod[];
}

/** Gives a client process its source and destination pods. */
export interface UseMessage {
  readonly type: 'use';
  readonly from: readonly LoadPod[];
  readonly to: readonly LoadPod[];
}

/** Opens connections, each with one exchange, and keeps them. */
export interface HoldMessage {
  readonly type: 'hold';
  readonly connections: number;
}

/** Makes new connections at a fixed rate, independent of the answers, each with one exchange. */
export interface RateMessage {
  readonly type: 'rate';
  readonly perSecond: number;
  readonly seconds: number;
}

/** Transfers bytes to the client over some connections, as fast as possible. */
export interface BulkMessage {
  readonly type: 'bulk';
  readonly connections: number;
  readonly seconds: number;
}

/** Closes the held connections, and counts those that had ended before. */
export interface ReleaseMessage {
  readonly type: 'release';
}

/** Any message. */
export type LoadMessage =
  | ServeMessage
  | UseMessage
  | HoldMessage
  | RateMessage
  | BulkMessage
  | ReleaseMessage;

/** The answer to any message; fields that do not apply are 0 or empty. */
export interface LoadAnswer {
  /** The number of successful connections or exchanges. */
  readonly done: number;
  /** The reason of each failure: refused, or ended before an answer. */
  readonly failures: readonly string[];
  readonly bytes: number;
  /** Milliseconds of each connection from its due time to the complete answer. */
  readonly latencies: readonly number[];
  /** The number of connections that had been answered and then ended by themselves. */
  readonly lost: number;
}

/** The port of the servers. */
export const LOAD_PORT = 9_100;
/** The bytes with which a client requests one small answer, or endless bytes. */
export const ASK_SMALL = 's';
export const ASK_BULK = 'b';
/** Length of a small answer. */
export const SMALL_BYTES = 1_024;
