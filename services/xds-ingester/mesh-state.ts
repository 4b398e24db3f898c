import type { StoredRow } from '../../lib/bus/contract.ts';
import { ROW_BYTES_MAX } from '../../lib/bus/limits.ts';
import type { Clock } from '../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { reachOf } from '../../lib/policy/reach.ts';
import type { Rejection } from '../../lib/policy/rejection.ts';
import type { ResourceSink } from '../../lib/xds/delta-client.ts';
import type { ResourceChanges, ResourceFailure } from '../../lib/xds/subscriptions.ts';
import { decodeAddress } from '../../lib/xds/resources/address.ts';
import { decodeAuthorization } from '../../lib/xds/resources/authorization.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../lib/xds/type-urls.ts';
import type { ResourceType } from '../../lib/xds/type-urls.ts';
import type { DeltaResource } from '../../lib/xds/wire.ts';
import { HeldRemovals } from './held-removals.ts';
import type { HoldRule } from './held-removals.ts';
import { ReplicaTable } from './replica-table.ts';

/**
 * The tables the ingester owns, in the order they are written: names that have no answer any more before the addresses, those that
 * have one are made when these are written; rejections and policies before the workloads that list them, held
 * removals before the addresses that are kept because of them.
 */
export const OWNED_TABLES = [
  'names',
  'rejections',
  'authorizations',
  'removals',
  'addresses',
] as const;

/** See {@link OWNED_TABLES}. */
export type OwnedTable = (typeof OWNED_TABLES)[number];

/** Tag of rows that come from the local file instead of the control plane; no server makes such a version. */
export const LOCAL_TAG = '\u0001local';

/** Resources that are taken in one turn of the event loop. */
const SLICE_RESOURCES = 500;

/** Longest name or version accepted: both are kept for every resource, and no control plane makes longer ones. */
const NAME_CHARS_MAX = 2_048;

/** Longest reason kept; the control plane's own text may be in it. */
const REASON_CHARS_MAX = 1_024;

const decoders: Readonly<Record<ResourceType, (bytes: Uint8Array) => unknown>> = {
  [ADDRESS_TYPE]: decodeAddress,
  [AUTHORIZATION_TYPE]: decodeAuthorization,
};

/** A resource of the local file. */
export interface LocalResource {
  readonly type: ResourceType;
  readonly name: string;
  readonly bytes: Uint8Array;
}

/**
 * The whole mesh state in memory: the resources of the control plane, those of the local file (which win where both name a
 * resource), and the rejections. A rejected resource keeps its last good version.
 */
export class MeshState implements ResourceSink {
  readonly tables: Readonly<Record<OwnedTable, ReplicaTable>> = {
    addresses: new ReplicaTable(),
    authorizations: new ReplicaTable(),
    rejections: new ReplicaTable(),
    removals: new ReplicaTable(),
    names: new ReplicaTable(),
  };
  /** Called when the rows were replaced by those of Redis. */
  onLoad: () => void = () => undefined;
  /** Removals that wait. */
  readonly held: HeldRemovals;
  readonly #clock: Clock;
  readonly #local: ReadonlyMap<string, LocalResource>;
  readonly #onChange: () => void;
  /** The removals that the ingester before held, while its tables are taken over. */
  #heldBefore: ReadonlyMap<string, StoredRow> = new Map();

  constructor(clock: Clock, local: readonly LocalResource[], onChange: () => void, rule: HoldRule) {
    this.#clock = clock;
    this.held = new HeldRemovals(this.tables.removals, rule);
    this.#local = new Map(
      local.map((resource) => [rowKey(resource.type, resource.name), resource]),
    );
    this.#onChange = onChange;
    this.#addLocal();
  }

  /** Whether any row is not in Redis yet. */
  get dirty(): boolean {
    return OWNED_TABLES.some((table) => this.tables[table].dirty > 0);
  }

  /** Starts from the rows of Redis; the local file's rows replace those of an earlier file. */
  load(
    stored: Readonly<Record<OwnedTable, Map<string, { value: Uint8Array; tag: string }>>>,
  ): void {
    for (const name of OWNED_TABLES) {
      const table = this.tables[name];
      table.load(stored[name]);
      for (const [key, row] of stored[name]) {
        if (row.tag === LOCAL_TAG) table.delete(key);
      }
    }
    this.#addLocal();
    this.onLoad();
    this.#onChange();
  }

  /** The whole mesh is followed and known: there are no names on demand. */
  forgetNames(): void {
    for (const [name] of this.tables.names.entries()) this.tables.names.delete(name);
  }

  /** Forgets the rows of a control plane: there is none any more. */
  dropRemote(): void {
    for (const name of OWNED_TABLES) {
      const table = this.tables[name];
      for (const [key, row] of table.entries()) {
        if (row.tag !== LOCAL_TAG) table.delete(key);
      }
    }
    this.#onChange();
  }

  /**
   * The resources held of a type, each with its last good version. A resource without a good version has an empty one: the server
   * then reports its removal, which clears its rejection.
   */
  versions(type: ResourceType): ReadonlyMap<string, string> {
    const versions = new Map<string, string>();
    for (const [key] of this.tables.rejections.entries()) {
      if (key.startsWith(`${type}/`)) versions.set(key.slice(type.length + 1), '');
    }
    for (const [name, row] of this.#table(type).entries()) {
      if (row.tag !== LOCAL_TAG) versions.set(name, row.tag);
    }
    return versions;
  }

  async apply(type: ResourceType, response: ResourceChanges): Promise<readonly ResourceFailure[]> {
    const failures: ResourceFailure[] = [];
    let count = 0;
    for (const resource of response.resources) {
      const reason = this.#take(type, resource);
      if (reason !== null) failures.push({ name: resource.name.slice(0, 256), reason });
      count += 1;
      if (count % SLICE_RESOURCES === 0) await nextTurn();
    }
    const { initial, removed } = response;
    // Policies and their removals are never held.
    if (type !== ADDRESS_TYPE) this.#remove(type, removed);
    else this.#remove(type, this.#judge(removed, initial));
    this.#onChange();
    return failures;
  }

  /**
   * Applies the held removals that are due, and those that an operator accepted: all held by `acceptedUpToMs`, milliseconds
   * since the epoch. Returns their number.
   */
  applyHeld(acceptedUpToMs?: number): number {
    const names = this.held.take(this.#clock.now(), acceptedUpToMs);
    if (names.length === 0) return 0;
    this.#remove(ADDRESS_TYPE, names);
    this.#onChange();
    return names.length;
  }

  /**
   * Takes over from the ingester that led before, whose rows of the table are `stored`, in the order of {@link OWNED_TABLES}.
   * Held addresses that it has removed are removed here. Addresses that only it has are removed by this ingester, and judged as
   * if the control plane had removed them: this ingester may have started from half of the mesh.
   */
  takeOver(table: OwnedTable, stored: ReadonlyMap<string, StoredRow>): void {
    if (table === 'removals') {
      this.held.continueFrom(stored);
      this.#heldBefore = stored;
    }
    if (table !== 'addresses') return;
    const { addresses } = this.tables;
    for (const name of this.held.settledIn(stored)) addresses.delete(name);
    const missing = [...stored].filter(
      ([name, { tag }]) => tag !== LOCAL_TAG && addresses.get(name) === undefined,
    );
    for (const [name, row] of missing) addresses.set(name, row);
    const names = missing.map(([name]) => name);
    for (const name of this.#judge(names, false)) addresses.delete(name);
    this.#heldBefore = new Map();
  }

  #judge(removed: readonly string[], initial: boolean): readonly string[] {
    const at = { initial, nowMs: this.#clock.now(), before: this.#heldBefore };
    return this.held.judge(removed, this.tables.addresses, at);
  }

  #remove(type: ResourceType, names: readonly string[]): void {
    for (const name of names) {
      this.tables.rejections.delete(rowKey(type, name));
      if (!this.#local.has(rowKey(type, name))) this.#table(type).delete(name);
    }
  }

  /** Takes the resource; returns why not, or null. */
  #take(type: ResourceType, resource: DeltaResource): string | null {
    const { name, version, bytes } = resource;
    const key = rowKey(type, name);
    if (type === ADDRESS_TYPE) this.held.sent(name);
    try {
      checkSize(resource);
      if (bytes === null) throw new MeshError('XDS_RESOURCE', 'resource without a payload');
      decoders[type](bytes);
    } catch (error) {
      const reason = errorText(error).slice(0, REASON_CHARS_MAX);
      if (name !== '' && name.length <= NAME_CHARS_MAX) this.#reject(type, resource, reason);
      return reason;
    }
    this.tables.rejections.delete(key);
    if (this.#local.has(key)) return null;
    // A copy: the message the bytes are part of may be as big as the whole mesh.
    this.#table(type).set(name, { value: new Uint8Array(bytes), tag: version });
    return null;
  }

  #reject(type: ResourceType, { name, bytes }: DeltaResource, reason: string): void {
    const at = new Date(this.#clock.now()).toISOString();
    const reach = type === AUTHORIZATION_TYPE ? { reach: reachOf(bytes) } : {};
    const rejection: Rejection = { type, name, reason, ...reach, at };
    const value = new TextEncoder().encode(JSON.stringify(rejection));
    this.tables.rejections.set(rowKey(type, name), { value, tag: '' });
  }

  #addLocal(): void {
    for (const { type, name, bytes } of this.#local.values()) {
      this.#table(type).set(name, { value: bytes, tag: LOCAL_TAG });
    }
  }

  #table(type: ResourceType): ReplicaTable {
    return type === ADDRESS_TYPE ? this.tables.addresses : this.tables.authorizations;
  }
}

/** Refuses a resource that does not fit a row: it would stop every write behind it. */
function checkSize({ name, version, bytes }: DeltaResource): void {
  if (name === '') throw new MeshError('XDS_RESOURCE', 'resource without a name');
  if (name.length > NAME_CHARS_MAX || version.length > NAME_CHARS_MAX) {
    throw new MeshError('XDS_RESOURCE', `name or version longer than ${NAME_CHARS_MAX}`);
  }
  if (bytes !== null && bytes.length > ROW_BYTES_MAX) {
    throw new MeshError('XDS_RESOURCE', `${bytes.length} bytes, more than ${ROW_BYTES_MAX}`);
  }
}

function rowKey(type: ResourceType, name: string): string {
  return `${type}/${name}`;
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
