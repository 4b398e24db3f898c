import { MeshError } from '../../../lib/errors/mesh-error.ts';

/** A setting that upstream has and this version does not carry out. */
interface Unsupported {
  readonly name: string;
  /** True when the value asks for the missing behaviour; the default never does. */
  asks(value: string): boolean;
  readonly why: string;
}

const isTrue = (value: string): boolean => value.toLowerCase() === 'true';

/** Refused rather than ignored: each would silently change security or reachability. */
const UNSUPPORTED: readonly Unsupported[] = [
  {
    name: 'XDS_ON_DEMAND',
    asks: isTrue,
    why: 'the whole mesh state is always held',
  },
  {
    name: 'FAKE_CA',
    asks: isTrue,
    why: 'it exists in upstream test builds only',
  },
];

/** Names of the variables that may be refused. */
export const UNSUPPORTED_NAMES: readonly string[] = UNSUPPORTED.map((setting) => setting.name);

/** Throws CONFIG_UNSUPPORTED that names every setting which asks for something that is not built. */
export function refuseUnsupported(values: Readonly<Record<string, string | null>>): void {
  const problems = UNSUPPORTED.flatMap((setting) => {
    const value = values[setting.name] ?? null;
    if (value === null || !setting.asks(value)) return [];
    return [`${setting.name}=${value} is not supported: ${setting.why}`];
  });
  if (problems.length === 0) return;
  throw new MeshError('CONFIG_UNSUPPORTED', problems.join('; '), {
    detail: { problems: problems.length },
  });
}
