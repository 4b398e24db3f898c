/** A broken invariant: a defect of the program, never of its input. It fails the actor. */
export class InvariantError extends Error {
  override readonly name = 'InvariantError';
}

/** Throws {@link InvariantError} unless `condition` holds; `why` states what must be true. */
export function assert(condition: unknown, why: string): asserts condition {
  if (!condition) throw new InvariantError(why);
}

/** Returns the value, which the program knows to be present. Throws {@link InvariantError} otherwise. */
export function present<T>(value: T | null | undefined, why: string): T {
  if (value === null || value === undefined) throw new InvariantError(why);
  return value;
}
