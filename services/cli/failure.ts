/** Turns the error of a command into an exit status and lines for standard error. */
import { CommanderError } from 'commander';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { UsageError } from '../../lib/errors/usage-error.ts';

/** The operation failed. */
export const EXIT_FAILED = 1;
/** The arguments are wrong. */
export const EXIT_USAGE = 2;
/** `weft check` could not judge everything, and nothing of the rest failed. */
export const EXIT_UNKNOWN = 3;
/** The configuration is wrong (EX_CONFIG of sysexits.h). */
export const EXIT_CONFIG = 78;

/** See {@link failureOf}. */
export interface Failure {
  readonly status: number;
  readonly lines: readonly string[];
}

/** Exit status and lines for an error that ended a command. No lines when the parser has already written them. */
export function failureOf(error: unknown): Failure {
  if (error instanceof CommanderError) {
    // Help and version end with 0. Help shown for a missing argument is wrong usage.
    return { status: error.exitCode === 0 ? 0 : EXIT_USAGE, lines: [] };
  }
  if (error instanceof UsageError) return { status: EXIT_USAGE, lines: [said(error)] };
  if (error instanceof MeshError) {
    switch (error.code) {
      case 'CONFIG_INVALID':
      case 'CONFIG_UNSUPPORTED':
        return { status: EXIT_CONFIG, lines: [said(error)] };
      case 'MANIFEST_INVALID':
        // Each problem begins with its file, as editors and scripts expect.
        return {
          status: EXIT_FAILED,
          lines: [...error.message.split('\n'), 'weft: nothing was changed'],
        };
      default:
    }
  }
  return { status: EXIT_FAILED, lines: [said(error)] };
}

function said(error: unknown): string {
  return `weft: ${errorText(error)
    .trim()
    .replaceAll(/\s*\n\s*/g, '; ')}`;
}
