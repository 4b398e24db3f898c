/** Thrown for a command line that the command does not accept; the exit status is 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}
