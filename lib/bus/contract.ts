/** What crosses processes: rows of replicated tables (the state plane) and jobs (the work plane). Plain data. */
import type { z } from 'zod';

/** Whose keys: shared by the mesh, or one node's own. Each is one Redis hash tag. */
export type Scope = 'mesh' | { readonly node: string };

/** Replicated tables. `addresses`, `authorizations`, `rejections`, `programs` are mesh scope; `enrolments` is per node. */
export type TableName = 'addresses' | 'authorizations' | 'rejections' | 'programs' | 'enrolments';

/**
 * One row. `version` grows with every write of the table within an epoch. The value may be a view into what came from the
 * network: whoever keeps it copies it.
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
 * What a reader is told. A full copy is `onReset`, `onEntries` (in slices) and `onSynced`; rows that were
 * held before and not announced in between are gone. Changes are only delivered between full copies.
 * Handlers run one at a time; a rejected promise stops the reader and fails the actor.
 */
export interface TableHandler {
  onReset(epoch: string): void | Promise<void>;
  onEntries(entries: readonly TableEntry[]): void | Promise<void>;
  onSynced(): void | Promise<void>;
  onChanges(changes: readonly TableChange[]): void | Promise<void>;
}

/** A change to write; a null value is a removal. */
export interface RowChange {
  readonly key: string;
  readonly value: Uint8Array | null;
  /** The writer's own note on the row, kept beside it in the same step and not shown to readers. */
  readonly tag?: string;
}

/** A row as its writer sees it; `tag` is empty when none was written. */
export interface StoredRow {
  readonly value: Uint8Array;
  readonly tag: string;
}

/**
 * How a table stands compared with what its writer last wrote or read: `intact`; `absent` (Redis lost its
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
}

/** What a job handler knows of its job besides the body. */
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
 * one, `dead` those that get none: attempts used up, or a message nobody can read. A job in `failed` is in `delayed`,
 * too, while its backoff runs.
 */
export interface QueueCounts {
  readonly name: string;
  readonly waiting: number;
  readonly active: number;
  readonly delayed: number;
  readonly failed: number;
  readonly dead: number;
}

/** Who is there: members that say so again and again, with a word about themselves. */
export interface Presence<Body> {
  /** Says that the member is there. BUS_UNAVAILABLE when Redis is away. */
  announce(member: string, body: Body): Promise<void>;
  /** The member goes. BUS_UNAVAILABLE when Redis is away: others see it go when its time is over. */
  leave(member: string): Promise<void>;
  /** Members that said so within `maxAgeMs`; those that cannot be read are left out. BUS_UNAVAILABLE when Redis is away. */
  members(maxAgeMs: number): Promise<ReadonlyMap<string, Body>>;
}
