/** The only reader of the process environment. */

/** Environment variables by name; absent and empty are different. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** The environment of this process. */
export function processEnvironment(): Environment {
  return process.env;
}
