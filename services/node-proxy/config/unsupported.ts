import { MeshError } from '../../../lib/errors/mesh-error.ts';

/** Settings of upstream that this version refuses when they are true: to ignore them would change security or reachability. */
const UNSUPPORTED: Readonly<Record<string, string>> = {
  FAKE_CA: 'it exists in upstream test builds only',
};

/** Names of the variables that may be refused. */
export const UNSUPPORTED_NAMES: readonly string[] = Object.keys(UNSUPPORTED);

/** Throws CONFIG_UNSUPPORTED that names every unsupported setting that is true. */
export function refuseUnsupported(values: Readonly<Record<string, string | null>>): void {
  const problems = Object.entries(UNSUPPORTED).flatMap(([name, why]) => {
    const value = values[name] ?? '';
    return value.toLowerCase() === 'true' ? [`${name}=${value} is not supported: ${why}`] : [];
  });
  if (problems.length === 0) return;
  throw new MeshError('CONFIG_UNSUPPORTED', problems.join('; '), {
    detail: { problems: problems.length },
  });
}
