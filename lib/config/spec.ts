import type * as z from 'zod';
import type { Environment } from './env.ts';

/** A zod schema over environment variables, keyed by variable name, and its mapping to a config object. */
export interface ConfigSpec<Config> {
  /** Every variable that the actor reads, for `--help`, the documents and the refusal of unknown `WEFT_*` names. */
  readonly variables: Readonly<Record<string, ConfigVariable>>;
  /** Throws one CONFIG_INVALID for all problems. */
  parse(environment: Environment): Config;
}

/** One documented environment variable. */
export interface ConfigVariable {
  readonly schema: z.ZodType;
  readonly description: string;
  /** When an operator changes it; Weft's own settings always have it. */
  readonly when?: string;
}

/** One variable as the documents show it. */
export interface VariableLine {
  readonly name: string;
  /** `required`, `optional`, or the default as it would be written. */
  readonly fallback: string;
  readonly description: string;
  /** When to change it; null for settings under upstream's names. */
  readonly when: string | null;
}

/** Returns the variables of a configuration, in the order of their declaration. */
export function describeVariables(spec: ConfigSpec<unknown>): VariableLine[] {
  return Object.entries(spec.variables).map(([name, { schema, description, when }]) => {
    const absent = schema.safeParse(undefined);
    const text = schema.description === '' ? '(empty)' : schema.description;
    return {
      name,
      fallback: absent.success ? (text ?? 'optional') : 'required',
      description,
      when: when ?? null,
    };
  });
}
