/** Says which pods are served. */
export interface PodSource {
  /** Begins to name pods. Call it once. */
  start(): void;
  /** The process drains: no pod comes any more, and those that leave are still told of. */
  drain(): void;
  /** Ends it; resolves when what is in hand is done with. Idempotent. */
  close(): Promise<void>;
}
