/**
 * What crosses processes: replicated tables (the state plane) and jobs (the work plane), as ports.
 * The Redis implementation stands in this folder; actors depend on these types only.
 */
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

/** Follows a table until closed, through Redis restarts, epochs and gaps. */
export interface TableReader {
  /** True once a full copy was delivered; stays true when Redis goes away (last known good). */
  readonly synced: boolean;
  close(): Promise<void>;
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

/**
 * Writes a table under a lease. Every step is atomic and guarded by the lease's fencing number and by the
 * epoch and version this writer left: STATE_CONFLICT when the lease was lost or the table is not as it was
 * left (see {@link standing}; then `replaceAll`, or `readAll` and go on), BUS_UNAVAILABLE when Redis is away.
 * Calls must not overlap.
 */
export interface TableWriter {
  /** Applies the changes in order, in one step up to 1,000 changes or 4 MiB, in several beyond. Repeating it is safe. */
  apply(changes: readonly RowChange[]): Promise<void>;
  /** Replaces the whole table under a new epoch; readers see the old table until the new one is complete. */
  replaceAll(
    entries: Iterable<readonly [key: string, value: Uint8Array, tag?: string]>,
  ): Promise<void>;
  /** Reads the whole table as it stands, for a writer that takes over. */
  readAll(): Promise<Map<string, Uint8Array>>;
  /** As {@link readAll}, with tags. */
  readRows(): Promise<Map<string, StoredRow>>;
  /** Compares the table with what this writer last wrote or read. */
  standing(): Promise<TableStanding>;
}

/** A leadership lease with a fencing number, renewed until closed or lost. */
export interface Lease {
  readonly held: boolean;
  /** Called on every gain (true) and loss (false). */
  onChange(listener: (held: boolean) => void): () => void;
  /** Gives the lease back, so that a standby need not wait for its end. */
  close(): Promise<void>;
}

/** A kind of job: a named, versioned message of the work plane. */
export interface JobDefinition<Body> {
  readonly queue: string;
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

/** Adds jobs. */
export interface WorkQueue<Body> {
  /** Adds the job unless one with this id waits or runs; a dead one with this id is replaced. BUS_UNAVAILABLE when Redis is away. Lower `priority` numbers go first (1 is the most urgent). */
  add(id: string, body: Body, options?: { priority?: number; delayMs?: number }): Promise<void>;
  /** Raises or lowers the urgency of a waiting job; no effect when it runs or is gone. */
  setPriority(id: string, priority: number): Promise<void>;
  remove(id: string): Promise<void>;
  close(): Promise<void>;
}

/** What a job handler knows of its job besides the body. */
export interface JobAttempt {
  readonly id: string;
  /** Counted from 1. */
  readonly attempt: number;
  readonly lastAttempt: boolean;
  readonly signal: AbortSignal;
}

/** Consumes jobs; several consumers of one queue compete. */
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

/** Short-lived results of jobs: a key with a lifetime under the scope's prefix. */
export interface ResultBoard<Body> {
  put(id: string, body: Body, lifetimeMs: number): Promise<void>;
  /** Waits for the result, null when `timeoutMs` passes first. */
  wait(id: string, timeoutMs: number, signal?: AbortSignal): Promise<Body | null>;
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

/** One connection set to Redis for one process; hands out the parts above. */
export interface Bus {
  /** False while Redis is away. */
  readonly connected: boolean;
  onConnection(listener: (connected: boolean) => void): () => void;
  lease(name: string, scope: Scope): Lease;
  reader(table: TableName, scope: Scope, handler: TableHandler): TableReader;
  writer(table: TableName, scope: Scope, lease: Lease): TableWriter;
  /** A writer for content-addressed rows that any replica may write the same way (programs). */
  sharedWriter(table: TableName, scope: Scope): TableWriter;
  queue<Body>(definition: JobDefinition<Body>, scope: Scope): WorkQueue<Body>;
  consume<Body>(
    definition: JobDefinition<Body>,
    scope: Scope,
    options: { concurrency: number },
    handler: (body: Body, attempt: JobAttempt) => Promise<void>,
  ): WorkConsumer;
  results<Body>(name: string, scope: Scope, body: z.ZodType<Body>): ResultBoard<Body>;
  presence<Body>(name: string, scope: Scope, body: z.ZodType<Body>): Presence<Body>;
  queueCounts(scopes: readonly Scope[]): Promise<readonly QueueCounts[]>;
  close(): Promise<void>;
}
