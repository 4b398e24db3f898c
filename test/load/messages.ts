/** What the load's processes are told, and what they answer; one answer for each message. */

/** A pod whose network a process uses. */
export interface LoadPod {
  readonly netns: string;
  readonly ip: string;
}

/** To a server process: listen in these pods. */
export interface ServeMessage {
  readonly type: 'serve';
  readonly pods: readonly LoadPod[];
}

/** To a client process: from which pods it connects, and to which. */
export interface UseMessage {
  readonly type: 'use';
  readonly from: readonly LoadPod[];
  readonly to: readonly LoadPod[];
}

/** Open connections, each with one exchange, and keep them. */
export interface HoldMessage {
  readonly type: 'hold';
  readonly connections: number;
}

/** New connections at a fixed rate whatever the answers take, each with one exchange. */
export interface RateMessage {
  readonly type: 'rate';
  readonly perSecond: number;
  readonly seconds: number;
}

/** Bytes towards the client over some connections, as fast as they come. */
export interface BulkMessage {
  readonly type: 'bulk';
  readonly connections: number;
  readonly seconds: number;
}

/** Close what is held, and say how many of it had ended before. */
export interface ReleaseMessage {
  readonly type: 'release';
}

/** Any of them. */
export type LoadMessage =
  | ServeMessage
  | UseMessage
  | HoldMessage
  | RateMessage
  | BulkMessage
  | ReleaseMessage;

/** The answer to any message; what does not apply is 0 or empty. */
export interface LoadAnswer {
  /** Connections or exchanges that went well. */
  readonly done: number;
  /** Why others did not, each: refused, or ended before an answer. */
  readonly failures: readonly string[];
  readonly bytes: number;
  /** Milliseconds from the moment a connection was due to the whole answer, of each. */
  readonly latencies: readonly number[];
  /** Connections that had been answered and then ended by themselves. */
  readonly lost: number;
}

/** Where the servers listen. */
export const LOAD_PORT = 9_100;
/** What a client sends for one small answer, and for bytes without end. */
export const ASK_SMALL = 's';
export const ASK_BULK = 'b';
/** Length of a small answer. */
export const SMALL_BYTES = 1_024;
