import type { TableName } from '../../lib/bus/contract.ts';
import type { Bus } from '../../lib/bus/redis-bus.ts';
import type { TableReader } from '../../lib/bus/table-reader.ts';
import { TableMirror } from '../../lib/bus/table-mirror.ts';
import type { TableSink } from '../../lib/bus/table-mirror.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { PolicyStore } from '../../lib/policy/policy-store.ts';
import { PackedStore } from '../../lib/state/packed-store.ts';
import { decodeAddress } from '../../lib/xds/resources/address.ts';
import { decodeAuthorization } from '../../lib/xds/resources/authorization.ts';
import { UNREADABLE_LOG_LINES_MAX } from './limits.ts';
import { WorkloadClasses } from './workload-classes.ts';

/** Dependencies of the mirror. */
export interface MirrorDeps {
  readonly bus: Bus;
  readonly log: Logger;
  readonly unknownReference: 'deny' | 'ignore';
  unreadable(table: TableName): void;
  /** Called when something changed that sets depend on. */
  changed(): void;
}

const SAMPLED_LOG_EACH = 100;

/** This process's copy of the mesh and its policies, kept through Redis's absence. */
export class MeshMirror {
  readonly mesh = new PackedStore(decodeAddress);
  readonly policies: PolicyStore;
  readonly classes = new WorkloadClasses();
  /** Sets that have a row in `programs`. */
  readonly programs = new Set<string>();
  readonly #deps: MirrorDeps;
  /** The tables that the ingester writes. */
  readonly #mesh: readonly TableMirror[];
  readonly #programs: TableMirror;
  readonly #readers: readonly TableReader[];
  readonly #ready = Promise.withResolvers<void>();
  #unreadableRows = 0;

  constructor(deps: MirrorDeps) {
    this.#deps = deps;
    this.policies = new PolicyStore(decodeAuthorization, {
      unknownReference: deps.unknownReference,
    });
    const addresses = this.#mirror({
      keys: () => this.mesh.names(),
      apply: (name, value) => this.#applyAddress(name, value),
    });
    const authorizations = this.#mirror({
      keys: () => this.policies.keys(),
      apply: (key, value) => {
        const { error } = this.policies.apply(key, value);
        if (error !== null) this.#unreadable('authorizations', key, error);
      },
    });
    const rejections = this.#mirror({
      keys: () => this.policies.rejectionRows(),
      apply: (key, value) => void this.policies.applyRejection(key, value),
    });
    const programs = this.#mirror({
      keys: () => this.programs,
      apply: (setId, value) =>
        void (value === null ? this.programs.delete(setId) : this.programs.add(setId)),
    });
    this.#mesh = [addresses, authorizations, rejections];
    this.#programs = programs;
    this.#readers = Object.entries({ addresses, authorizations, rejections, programs }).map(
      ([table, mirror]) => deps.bus.reader(table as TableName, 'mesh', mirror),
    );
  }

  /** Resolves once the tables of the ingester were copied completely. */
  get meshComplete(): Promise<void> {
    return this.#ready.promise;
  }

  /** True once the programs were copied. */
  get programsComplete(): boolean {
    return this.#programs.synced;
  }

  /** True while a full copy is taken; the rows held may then be of two epochs. */
  get copying(): boolean {
    return [...this.#mesh, this.#programs].some((mirror) => mirror.copying);
  }

  /** Stops following. */
  async close(): Promise<void> {
    await Promise.all(this.#readers.map((reader) => reader.close()));
  }

  #mirror(sink: TableSink): TableMirror {
    const applied = (): void => {
      if (this.#mesh.every((mirror) => mirror.synced)) this.#ready.resolve();
      this.#deps.changed();
    };
    return new TableMirror({ ...sink, applied });
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

  #unreadable(table: TableName, key: string, error: unknown): void {
    this.#unreadableRows += 1;
    this.#deps.unreadable(table);
    const count = this.#unreadableRows;
    if (count > UNREADABLE_LOG_LINES_MAX && count % SAMPLED_LOG_EACH !== 0) return;
    this.#deps.log.error({ table, key, error: errorText(error), count }, 'policy.unreadable-row');
  }
}
