import { CommanderError } from 'commander';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { EXIT_CONFIG } from '../../lib/actor/run-actors.ts';
import { UsageError } from './usage-error.ts';

/** A failed operation. */
const EXIT_FAILED = 1;
/** Wrong usage. */
const EXIT_USAGE = 2;

/** What a command that failed with `error` says and exits with; commander has said its part itself. */
export function describeFailure(error: unknown): { readonly text: string | null; readonly code: number } {
  if (error instanceof CommanderError) {
    return { text: null, code: error.exitCode === 0 ? 0 : EXIT_USAGE };
  }
  if (error instanceof UsageError) return { text: error.message, code: EXIT_USAGE };
  const config = error instanceof MeshError && error.code === 'CONFIG_INVALID';
  return { text: errorText(error), code: config ? EXIT_CONFIG : EXIT_FAILED };
}
