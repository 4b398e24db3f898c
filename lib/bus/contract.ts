/** Data that crosses processes: rows of replicated tables (the state plane) and jobs (the work plane). */
import type * as z from 'zod';

/** The owner of keys: the mesh, or one node. Each is one Redis hash tag. */
export type Scope = 'mesh' | { readonly node: string };

/** Replicated tables. `enrolments` is per node; the others are mesh scope. */
export type TableName =
  | 'addresses'
  | 'authorizations'
  | 'rejections'
  /** Removals of addresses that wait; only ingesters and operators read it. */
  | 'removals'
  /** Names that are subscribed on demand and have their answer (docs/decisions/on-demand.md). */
  | 'names'
  | 'programs'
  | 'enrolments';

/**
 * One row. `version` grows with every write of the table within an epoch. The value may be a view into a
 * network buffer: copy it to keep it.
 */
export interface TableEntry {
  readonly key: string;
  readonly version: number;
  readonly value: Uint8Array;
}

/** One change; a null value is a removal. */
export interface TableChange {
  readonly key: string;
  readonly version: number;
  readonly value: Uint8Array | null;
}

/**
 * Takes what a reader delivers. A full copy is `onReset`, `onEntries` (in slices) and `onSynced`; rows that were held before and
 * did not come in between are gone. Changes come only between full copies. Handlers run one at a time; a rejected promise stops
 * the reader and fails the actor.
 */
export interface TableHandler {
  /** The copy that begins holds at least all changes up to `version`. */
  onReset(epoch: string, version: number): void | Promise<void>;
  onEntries(entries: readonly TableEntry[]): void | Promise<void>;
  onSynced(): void | Promise<void>;
  /** With these, all changes up to `version` are delivered. There may be none: a full copy may hold a change already. */
  onChanges(changes: readonly TableChange[], version: number): void | Promise<void>;
}

/** A change to write; a null value is a removal. */
export interface RowChange {
  readonly key: string;
  readonly value: Uint8Array | null;
  /** The writer's note on the row, kept beside it in the same step and not shown to readers. */
  readonly tag?: string;
}

/** A row as its writer sees it; `tag` is empty when none was written. */
export interface StoredRow {
  readonly value: Uint8Array;
  readonly tag: string;
}

/**
 * A table compared with what its writer last wrote or read: `intact`; `absent` (Redis lost its
 * data, or it was never written); `behind` (Redis lost the last writes); `foreign` (another writer was there).
 */
export type TableStanding = 'intact' | 'absent' | 'behind' | 'foreign';

/** A kind of job: a named, versioned message of the work plane. */
export interface JobDefinition<Body> {
  /** BullMQ queue; the scope gives its prefix. */
  readonly queue: string;
  /** An imperative such as `certificate.sign`. */
  readonly name: string;
  readonly version: number;
  readonly body: z.ZodType<Body>;
  /** A valid body, round-tripped by the contract tests. */
  readonly sample: Body;
  readonly attempts: number;
  /** Delay after the first failed attempt; it doubles with each, up to a minute. */
  readonly backoffMs: number;
  /** Reads a body of `version - 1`; without it such messages are parked, never guessed. */
  readonly previous?: (body: unknown) => Body;
  /**
   * Writes a body of `version - 1`, which is sent too, so that consumers of the last minor version do the work as well. The minor
   * version after the one that changed the body drops it.
   */
  readonly older?: (body: Body) => unknown;
}

/** A job as its handler sees it, without the body. */
export interface JobAttempt {
  readonly id: string;
  /** Counted from 1. */
  readonly attempt: number;
  readonly lastAttempt: boolean;
  readonly signal: AbortSignal;
}

/** Consumes jobs, whatever their body. */
export interface WorkConsumer {
  /** Takes no new job and waits for those in hand. */
  drain(): Promise<void>;
  close(): Promise<void>;
}

/**
 * Depth of a queue, as `weft get queues` shows it. `failed` counts jobs that wait for another attempt after a failed
 * one, `dead` those that get none: attempts used up, or an unreadable message. A job in `failed` is also in `delayed`
 * while its backoff runs.
 */
export interface QueueCounts {
  readonly name: string;
  readonly waiting: number;
  readonly active: number;
  readonly delayed: number;
  readonly failed: number;
  readonly dead: number;
}

/** A list of members that are there. Each announces itself again and again, with a report about itself. */
export interface Presence<Body> {
  /** Announces the member. BUS_UNAVAILABLE when Redis is away. */
  announce(member: string, body: Body): Promise<void>;
  /** Removes the member. BUS_UNAVAILABLE when Redis is away: others then see it go when its time is over. */
  leave(member: string): Promise<void>;
  /** Members that announced themselves within `maxAgeMs`, without those that cannot be read. BUS_UNAVAILABLE when Redis is away. */
  members(maxAgeMs: number): Promise<ReadonlyMap<string, Body>>;
}
