import { randomBytes } from 'node:crypto';
import { assert } from '../errors/assert.ts';
import { MeshError } from '../errors/mesh-error.ts';
import type { RowChange, StoredRow, TableStanding } from './contract.ts';
import type { TableKeys } from './keys.ts';
import type { Lease } from './lease.ts';
import {
  APPLY_STEP_BYTES_MAX,
  APPLY_STEP_CHANGES_MAX,
  LOG_ENTRIES_MAX,
  ROW_BYTES_MAX,
} from './limits.ts';
import type { MalformedReport } from './malformed.ts';
import { asBusError } from './redis-client.ts';
import type { RedisClient } from './redis-client.ts';
import { decodeRow } from './rows.ts';
import { scanHash } from './scan-hash.ts';
import { loadScript, runScript } from './script.ts';

const APPLY = loadScript('table-apply');
const STAGE = loadScript('table-stage');
const SWAP = loadScript('table-swap');

/** Attempts at a full read that another writer disturbs. */
const READ_ATTEMPTS_MAX = 5;

/** The state of a table after a step. */
export interface Mark {
  readonly epoch: string;
  readonly version: number;
}

/** Dependencies of a writer. */
export interface WriterDeps {
  readonly table: string;
  readonly keys: TableKeys;
  /** Null for a table that any replica may write. */
  readonly lease: Lease | null;
  readonly commands: RedisClient;
  readonly malformed: MalformedReport;
}

/**
 * Writes a table in Lua steps. Each step is atomic and guarded by the lease's fencing number and by the epoch and version
 * that this writer left. Throws STATE_CONFLICT when the lease was lost or the table is not as it was left: then see
 * {@link standing}, and call {@link replaceAll} or {@link readAll}. Throws BUS_UNAVAILABLE when Redis is away. Calls must not
 * overlap.
 */
export class TableWriter {
  readonly #deps: WriterDeps;
  /** The state that this writer last wrote or read. */
  #left: Mark | null = null;
  /** The state instead if the last step, which got no answer, was done. */
  #maybe: Mark | null = null;
  #busy = false;

  constructor(deps: WriterDeps) {
    this.#deps = deps;
  }

  /** The state of the table that this writer last wrote or read; null before. */
  get mark(): Mark | null {
    return this.#left;
  }

  /** Applies the changes in order, in one step up to 1,000 changes or 4 MiB, in several beyond. Repeating it is safe. */
  apply(changes: readonly RowChange[]): Promise<void> {
    return this.#exclusive(async () => {
      for (const step of applySteps(this.#deps.table, changes)) await this.#applyStep(step);
    });
  }

  /** Replaces the whole table under a new epoch. Readers see the old table until the new one is complete. */
  replaceAll(
    entries: Iterable<readonly [key: string, value: Uint8Array, tag?: string]>,
  ): Promise<void> {
    return this.#exclusive(async () => {
      const epoch = newEpoch();
      let staged = 0;
      for (const step of stageSteps(this.#deps.table, entries)) {
        await this.#stageStep(epoch, staged, step);
        staged += step.length;
      }
      if (staged === 0) await this.#stageStep(epoch, 0, []);
      await this.#swap(epoch, staged);
      this.#know({ epoch, version: staged });
    });
  }

  /** Reads the whole table, for a writer that takes over. */
  async readAll(): Promise<Map<string, Uint8Array>> {
    const rows = await this.readRows();
    return new Map([...rows].map(([key, row]) => [key, row.value]));
  }

  /** As {@link readAll}, with tags. */
  readRows(): Promise<Map<string, StoredRow>> {
    return this.#exclusive(async () => {
      for (let attempt = 0; attempt < READ_ATTEMPTS_MAX; attempt += 1) {
        const before = await this.#readMeta();
        const rows = before === null ? new Map<string, StoredRow>() : await this.#readData();
        const after = await this.#readMeta();
        if (before?.epoch !== after?.epoch || before?.version !== after?.version) continue;
        this.#know(before);
        return rows;
      }
      throw new MeshError('STATE_CONFLICT', `table ${this.#deps.table} changes while it is read`);
    });
  }

  /** Compares the table with what this writer last wrote or read. */
  async standing(): Promise<TableStanding> {
    const current = await this.#readMeta();
    if (current === null) return 'absent';
    if (isAt(this.#maybe, current)) this.#know(current);
    const left = this.#left;
    if (isAt(left, current)) return 'intact';
    const behind = current.epoch === left?.epoch && current.version < left.version;
    return behind ? 'behind' : 'foreign';
  }

  #know(mark: Mark | null): void {
    this.#left = mark;
    this.#maybe = null;
  }

  async #exclusive<T>(work: () => Promise<T>): Promise<T> {
    assert(!this.#busy, `calls of the writer of ${this.#deps.table} overlap`);
    this.#busy = true;
    try {
      return await work();
    } catch (error) {
      throw asBusError(error, `table ${this.#deps.table}`);
    } finally {
      this.#busy = false;
    }
  }

  async #applyStep(step: readonly RowChange[]): Promise<void> {
    const { keys } = this.#deps;
    const left = this.#left;
    const maybe = this.#maybe;
    const args: (string | Uint8Array)[] = [
      this.#token(),
      left?.epoch ?? '',
      // Several replicas write a table without a lease, so its version is not compared.
      left === null || this.#deps.lease === null ? '' : String(left.version),
      left === null || maybe?.epoch !== left.epoch ? '' : String(maybe.version),
      newEpoch(),
      String(LOG_ENTRIES_MAX),
    ];
    for (const { key, value, tag } of step) {
      args.push(key, value === null ? 'd' : 's', value ?? '', tag ?? '');
    }
    if (left !== null) this.#maybe = { ...left, version: left.version + step.length };
    const all = [keys.meta, keys.data, keys.log, keys.tags, ...this.#leaseKey()];
    const reply = await runScript(this.#deps.commands, APPLY, all, args);
    const [outcome, epoch, version] = reply as [string, string, string];
    if (outcome !== 'ok') {
      this.#maybe = maybe;
      throw this.#conflict(outcome);
    }
    this.#know({ epoch, version: Number(version) });
  }

  async #stageStep(epoch: string, before: number, step: readonly StageRow[]): Promise<void> {
    const { keys } = this.#deps;
    const args = [this.#token(), epoch, String(before), ...step.flat()];
    const all = [keys.meta, keys.stage, keys.stageTags, ...this.#leaseKey()];
    const outcome = await runScript(this.#deps.commands, STAGE, all, args);
    if (outcome !== 'ok') throw this.#conflict(String(outcome));
  }

  async #swap(epoch: string, staged: number): Promise<void> {
    const { keys } = this.#deps;
    const all = [keys.meta, keys.data, keys.log, keys.tags, keys.stage, keys.stageTags];
    const count = String(staged);
    const args = [this.#token(), epoch, count, count];
    const maybe = this.#maybe;
    this.#maybe = { epoch, version: staged };
    const outcome = await runScript(this.#deps.commands, SWAP, [...all, ...this.#leaseKey()], args);
    if (outcome !== 'ok') {
      this.#maybe = maybe;
      throw this.#conflict(String(outcome));
    }
  }

  #leaseKey(): readonly string[] {
    return this.#deps.lease === null ? [] : [this.#deps.lease.key];
  }

  #token(): string {
    if (this.#deps.lease === null) return '';
    const { token } = this.#deps.lease;
    if (token === null) throw this.#conflict('lease');
    return token;
  }

  #conflict(why: string): MeshError {
    const texts: Record<string, string> = {
      lease: 'the lease is not held (any more)',
      absent: 'the table is gone',
      epoch: 'the table has another epoch',
      version: 'the table is not as this writer left it',
      stage: 'another writer replaces the table',
    };
    return new MeshError('STATE_CONFLICT', `table ${this.#deps.table}: ${texts[why] ?? why}`, {
      detail: { table: this.#deps.table, why },
    });
  }

  async #readMeta(): Promise<Mark | null> {
    const { commands, keys, table } = this.#deps;
    try {
      const [epoch, version, complete] = await commands.hmget(
        keys.meta,
        'epoch',
        'version',
        'complete',
      );
      if (epoch === null || epoch === undefined || complete !== '1') return null;
      return { epoch, version: Number(version) };
    } catch (error) {
      throw asBusError(error, `table ${table}`);
    }
  }

  async #readData(): Promise<Map<string, StoredRow>> {
    const { commands, keys, malformed } = this.#deps;
    const tags = new Map<string, string>();
    for await (const slice of scanHash(commands, keys.tags)) {
      for (const [key, tag] of slice) tags.set(key.toString(), tag.toString());
    }
    const rows = new Map<string, StoredRow>();
    for await (const slice of scanHash(commands, keys.data)) {
      for (const [key, row] of slice) {
        const entry = decodeRow(key, row);
        if (entry === null) {
          malformed.report(key.toString(), 'row is not a version and a value');
          continue;
        }
        const tag = tags.get(entry.key) ?? '';
        rows.set(entry.key, { value: new Uint8Array(entry.value), tag });
      }
    }
    return rows;
  }
}

function isAt(mark: Mark | null, current: Mark): boolean {
  return mark?.epoch === current.epoch && mark.version === current.version;
}

type StageRow = readonly [key: string, value: Uint8Array, tag: string];

/** A random name for a generation of a table. */
function newEpoch(): string {
  return randomBytes(12).toString('hex');
}

function* applySteps(table: string, changes: readonly RowChange[]): Generator<RowChange[]> {
  yield* slices(changes, (change) => size(table, change.key, change.value));
}

function* stageSteps(
  table: string,
  entries: Iterable<readonly [key: string, value: Uint8Array, tag?: string]>,
): Generator<StageRow[]> {
  const rows = function* (): Generator<StageRow> {
    for (const [key, value, tag] of entries) yield [key, value, tag ?? ''];
  };
  yield* slices(rows(), ([key, value]) => size(table, key, value));
}

function size(table: string, key: string, value: Uint8Array | null): number {
  const bytes = value?.length ?? 0;
  if (bytes > ROW_BYTES_MAX) {
    throw new MeshError(
      'STATE_INVALID',
      `table ${table}: ${key} has ${bytes} bytes, more than ${ROW_BYTES_MAX}`,
    );
  }
  return key.length + bytes;
}

/** Cuts items so that a slice holds at most the items and, beyond its first, the bytes of one step. */
function* slices<Item>(items: Iterable<Item>, sizeOf: (item: Item) => number): Generator<Item[]> {
  let slice: Item[] = [];
  let bytes = 0;
  for (const item of items) {
    const size = sizeOf(item);
    const full = slice.length >= APPLY_STEP_CHANGES_MAX || bytes + size > APPLY_STEP_BYTES_MAX;
    if (full && slice.length > 0) {
      yield slice;
      slice = [];
      bytes = 0;
    }
    slice.push(item);
    bytes += size;
  }
  if (slice.length > 0) yield slice;
}
