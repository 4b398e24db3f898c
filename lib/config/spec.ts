import type { z } from 'zod';
import type { Environment } from './env.ts';

/** A zod schema over environment variables, keyed by variable name, and its mapping to a config object. */
export interface ConfigSpec<Config> {
  /** Every variable the actor reads, for `--help`, docs and the refusal of unknown `WEFT_*` names. */
  readonly variables: Readonly<Record<string, ConfigVariable>>;
  /** All problems at once, as one CONFIG_INVALID. */
  parse(environment: Environment): Config;
}

/** One documented environment variable. */
export interface ConfigVariable {
  readonly schema: z.ZodType;
  readonly description: string;
  /** When an operator changes it; every setting of Weft's own says so. */
  readonly when?: string;
}
