/** Reads the process environment; no other file does. */

/** Environment variables by name. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** Returns the environment of this process. */
export function processEnvironment(): Environment {
  return process.env;
}
