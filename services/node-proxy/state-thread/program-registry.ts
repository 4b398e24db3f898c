import { evictOldest } from '../../../lib/collections/evict.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { compileProgram } from '../../../lib/policy/compile.ts';
import type { PolicyProgram } from '../../../lib/policy/model.ts';
import type { NamedPolicy } from '../../../lib/policy/named-policy.ts';
import { decodeProgram } from '../../../lib/policy/program-codec.ts';

/** Programs of sets that some pod here uses or lately used; the oldest go first. */
const MAX_PROGRAMS = 2_048;

/** Rows of sets nobody here uses are kept as bytes; a mesh has about as many as it has distinct selectors. */
const MAX_ROWS = 65_536;

/**
 * Programs by set: the evaluator's where it has published one that can be read, else compiled here from the
 * same policies by the same function, which gives the same program.
 */
export class ProgramRegistry {
  readonly #log: Logger;
  readonly #rows = new Map<string, Uint8Array>();
  readonly #programs = new Map<string, PolicyProgram>();
  #received = 0;
  #compiled = 0;

  constructor(log: Logger) {
    this.#log = log;
  }

  /** How many programs came from the evaluator, and how many were compiled here. */
  get counts(): { readonly received: number; readonly compiled: number } {
    return { received: this.#received, compiled: this.#compiled };
  }

  /** Takes a row of the `programs` table; null = removed. A program in use stays: its set names its contents. */
  apply(setId: string, value: Uint8Array | null): void {
    this.#rows.delete(setId);
    if (value === null) return;
    this.#rows.set(setId, value.slice());
    evictOldest(this.#rows, MAX_ROWS);
  }

  /** Set ids of the rows held. */
  rowKeys(): readonly string[] {
    return [...this.#rows.keys()];
  }

  /** The program of the set, null when it is not here yet. */
  find(setId: string): PolicyProgram | null {
    return this.#programs.get(setId) ?? this.#read(setId);
  }

  /** The program of the set, compiled here when there is no other. */
  compile(setId: string, members: readonly NamedPolicy[]): PolicyProgram {
    const found = this.find(setId);
    if (found !== null) return found;
    this.#compiled += 1;
    this.#log.info({ setId, policies: members.length }, 'program.compiled-here');
    return this.#keep(compileProgram(setId, members));
  }

  #read(setId: string): PolicyProgram | null {
    const row = this.#rows.get(setId);
    if (row === undefined) return null;
    try {
      const program = decodeProgram(setId, row);
      this.#received += 1;
      return this.#keep(program);
    } catch (error) {
      this.#rows.delete(setId);
      this.#log.warn({ setId, error: errorText(error) }, 'program.unreadable');
      return null;
    }
  }

  #keep(program: PolicyProgram): PolicyProgram {
    this.#programs.set(program.setId, program);
    evictOldest(this.#programs, MAX_PROGRAMS);
    return program;
  }
}
