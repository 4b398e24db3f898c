import type * as z from 'zod';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import type { ConfigSpec, ConfigVariable } from './spec.ts';

/** The parsed values of variables. */
export type ConfigValues<Variables extends Readonly<Record<string, ConfigVariable>>> = {
  readonly [Name in keyof Variables]: z.output<Variables[Name]['schema']>;
};

/**
 * Makes a configuration from environment variables. `map` shapes the parsed values and may throw a MeshError for rules that
 * span variables. `parse` throws one CONFIG_INVALID for all bad variables. It freezes its result, which must be plain data
 * because it may cross a thread.
 */
export function defineConfig<
  const Variables extends Readonly<Record<string, ConfigVariable>>,
  Config,
>(variables: Variables, map: (values: ConfigValues<Variables>) => Config): ConfigSpec<Config> {
  return {
    variables,
    parse(environment) {
      const values: Record<string, unknown> = {};
      const problems: string[] = [];
      for (const [name, variable] of Object.entries(variables)) {
        const result = variable.schema.safeParse(environment[name]);
        if (result.success) values[name] = result.data;
        else problems.push(...result.error.issues.map((issue) => `${name} ${issue.message}`));
      }
      if (problems.length > 0) throw configInvalid(problems);
      try {
        return deepFreeze(map(values as ConfigValues<Variables>));
      } catch (error) {
        if (error instanceof MeshError) throw error;
        throw configInvalid([errorText(error)]);
      }
    },
  };
}

/** Makes a CONFIG_INVALID that lists all problems. */
export function configInvalid(problems: readonly string[]): MeshError {
  return new MeshError('CONFIG_INVALID', `invalid configuration: ${problems.join('; ')}`, {
    detail: { problems: problems.length },
  });
}

/** Freezes plain data at every depth, and returns it. */
export function deepFreeze<T>(value: T): T {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value;
  if (ArrayBuffer.isView(value)) return value;
  Object.freeze(value);
  for (const child of Object.values(value)) deepFreeze(child);
  return value;
}
