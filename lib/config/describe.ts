import type { ConfigSpec } from './spec.ts';

/** One variable as a user reads of it. */
export interface VariableLine {
  readonly name: string;
  /** `required`, `optional`, or the default as it would be written. */
  readonly fallback: string;
  readonly description: string;
  /** When to change it; null for settings under upstream's names. */
  readonly when: string | null;
}

/** What the configuration reads, in the order it is declared. */
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
