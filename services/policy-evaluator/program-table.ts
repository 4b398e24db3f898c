import type { RowChange } from '../../lib/bus/contract.ts';
import type { Bus } from '../../lib/bus/redis-bus.ts';
import type { TableWriter } from '../../lib/bus/table-writer.ts';
import { compileProgram } from '../../lib/policy/compile.ts';
import { encodeProgram } from '../../lib/policy/program-codec.ts';
import type { PolicyProgram } from '../../lib/policy/model.ts';
import { EMPTY_SET_ID } from '../../lib/policy/set-id.ts';

/**
 * Writes the `programs` table. Its rows are named by their contents, so replicas need no lease and remember no version: each step
 * is independent.
 */
export class ProgramTable {
  readonly #bus: Bus;

  constructor(bus: Bus) {
    this.#bus = bus;
  }

  /** Writes a program. Throws BUS_UNAVAILABLE when Redis is away. */
  publish(program: PolicyProgram): Promise<void> {
    return this.#apply([{ key: program.setId, value: encodeProgram(program) }]);
  }

  /** Removes programs. Throws as {@link publish}. */
  drop(setIds: readonly string[]): Promise<void> {
    return this.#apply(setIds.map((key) => ({ key, value: null })));
  }

  /**
   * Makes the table where there is none, as on a new or an emptied Redis, with the program of the set without
   * policies: a table that is not there cannot be copied. True when it was made. Throws as {@link publish}.
   */
  async ensure(): Promise<boolean> {
    if ((await this.#writer().standing()) !== 'absent') return false;
    await this.publish(compileProgram(EMPTY_SET_ID, []));
    return true;
  }

  #apply(changes: readonly RowChange[]): Promise<void> {
    return this.#writer().apply(changes);
  }

  #writer(): TableWriter {
    return this.#bus.sharedWriter('programs', 'mesh');
  }
}
