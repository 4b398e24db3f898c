import type { Bus, TableHandler, TableName, TableReader } from '../../lib/bus/contract.ts';
import { TimeSlice } from '../../lib/async/time-slice.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { PolicyStore } from '../../lib/policy/policy-store.ts';
import { decodeProgram } from '../../lib/policy/program-codec.ts';
import { CopyTracker } from '../../lib/state/copy-tracker.ts';
import { PackedStore } from '../../lib/state/packed-store.ts';
import { decodeAddress } from '../../lib/xds/resources/address.ts';
import { decodeAuthorization } from '../../lib/xds/resources/authorization.ts';
import { SLICE_MS, UNREADABLE_LOG_LINES_MAX } from './limits.ts';
import { WorkloadClasses } from './workload-classes.ts';

/** What the mirror needs. */
export interface MirrorDependencies {
  readonly bus: Bus;
  readonly log: Logger;
  readonly unknownReference: 'deny' | 'ignore';
  unreadable(table: TableName): void;
  /** Something that sets depend on changed. */
  changed(): void;
}

/** A table's contents as this process keeps them. */
interface Sink {
  held(): Iterable<string>;
  apply(key: string, value: Uint8Array | null): void;
}

const TABLES = ['addresses', 'authorizations', 'rejections', 'programs'] as const;
type MirroredTable = (typeof TABLES)[number];

const SAMPLED_LOG_EACH = 100;

/** This process's copy of the mesh and its policies, kept through Redis's absence. */
export class MeshMirror {
  readonly mesh = new PackedStore(decodeAddress);
  readonly policies: PolicyStore;
  readonly classes = new WorkloadClasses();
  /** Sets that have a good row in `programs`. */
  readonly programs = new Set<string>();
  readonly #deps: MirrorDependencies;
  readonly #readers: Readonly<Record<MirroredTable, TableReader>>;
  readonly #complete = new Set<MirroredTable>();
  readonly #copying = new Set<MirroredTable>();
  readonly #ready = Promise.withResolvers<void>();
  #unreadableRows = 0;

  constructor(deps: MirrorDependencies) {
    this.#deps = deps;
    this.policies = new PolicyStore(decodeAuthorization, {
      unknownReference: deps.unknownReference,
    });
    this.#readers = {
      addresses: this.#follow('addresses', {
        held: () => this.mesh.names(),
        apply: (name, value) => this.#applyAddress(name, value),
      }),
      authorizations: this.#follow('authorizations', {
        held: () => this.policies.keys(),
        apply: (key, value) => {
          const { error } = this.policies.apply(key, value);
          if (error !== null) this.#unreadable('authorizations', key, error);
        },
      }),
      rejections: this.#follow('rejections', {
        held: () => this.policies.rejectionRows(),
        apply: (key, value) => void this.policies.applyRejection(key, value),
      }),
      programs: this.#follow('programs', {
        held: () => this.programs,
        apply: (setId, value) => this.#applyProgram(setId, value),
      }),
    };
  }

  /** Resolves once what the ingester writes was copied completely. */
  get meshComplete(): Promise<void> {
    return this.#ready.promise;
  }

  /** True once the programs were copied, too. */
  get programsComplete(): boolean {
    return this.#complete.has('programs');
  }

  /** True while a full copy is being taken, and what is held may be of two epochs. */
  get copying(): boolean {
    return this.#copying.size > 0;
  }

  /** Stops following. */
  async close(): Promise<void> {
    await Promise.all(TABLES.map((table) => this.#readers[table].close()));
  }

  #follow(table: MirroredTable, sink: Sink): TableReader {
    const tracker = new CopyTracker();
    const take = async (
      rows: readonly { readonly key: string; readonly value: Uint8Array | null }[],
    ): Promise<void> => {
      const slice = new TimeSlice(SLICE_MS);
      for (const { key, value } of rows) {
        tracker.saw(key);
        sink.apply(key, value);
        await slice.breathe();
      }
      this.#deps.changed();
    };
    const handler: TableHandler = {
      onReset: () => {
        this.#copying.add(table);
        tracker.begin(sink.held());
      },
      onEntries: take,
      onSynced: async () => {
        await take(tracker.end().map((key) => ({ key, value: null })));
        this.#copying.delete(table);
        this.#synced(table);
      },
      onChanges: take,
    };
    return this.#deps.bus.reader(table, 'mesh', handler);
  }

  #synced(table: MirroredTable): void {
    this.#complete.add(table);
    this.#deps.log.info({ table }, 'policy.table-copied');
    const mesh = (['addresses', 'authorizations', 'rejections'] as const).every((name) =>
      this.#complete.has(name),
    );
    if (mesh) this.#ready.resolve();
    this.#deps.changed();
  }

  #applyAddress(name: string, value: Uint8Array | null): void {
    const before = this.mesh.resource(name);
    try {
      this.mesh.apply(name, value);
    } catch (error) {
      this.#unreadable('addresses', name, error);
      return;
    }
    this.classes.replace(before, this.mesh.resource(name));
  }

  /** A row that is no program counts as missing, so that it is compiled again. */
  #applyProgram(setId: string, value: Uint8Array | null): void {
    this.programs.delete(setId);
    if (value === null) return;
    try {
      decodeProgram(setId, value);
      this.programs.add(setId);
    } catch (error) {
      this.#unreadable('programs', setId, error);
    }
  }

  #unreadable(table: MirroredTable, key: string, error: unknown): void {
    this.#unreadableRows += 1;
    this.#deps.unreadable(table);
    const count = this.#unreadableRows;
    if (count > UNREADABLE_LOG_LINES_MAX && count % SAMPLED_LOG_EACH !== 0) return;
    this.#deps.log.error({ table, key, error: errorText(error), count }, 'policy.unreadable-row');
  }
}
