/** The file of `weft run --config`: variables as a YAML or JSON map. */
import { readFile } from 'node:fs/promises';
import { yaml } from '../../lib/config/yaml.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';

/** Variables from a file. Throws CONFIG_INVALID that names the file and every problem in it. */
export async function readConfigFile(
  path: string,
  known: Iterable<string>,
): Promise<Readonly<Record<string, string>>> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    throw new MeshError('CONFIG_INVALID', `${path}: ${errorText(error)}`, { cause: error });
  }
  return parseConfigFile(path, text, known);
}

/** {@link readConfigFile} for a text. `known` are the names that the hosted actors read. */
export function parseConfigFile(
  source: string,
  text: string,
  known: Iterable<string>,
): Readonly<Record<string, string>> {
  let value: unknown;
  try {
    // Keep `10s`, `0x10` and `2026-01-01` as text; refuse a key that is given twice.
    value = yaml().parse(text, { schema: 'core', prettyErrors: true, uniqueKeys: true });
  } catch (error) {
    throw invalid(source, [errorText(error).trim().split('\n')[0] ?? '']);
  }
  if (value === null || value === undefined) return {};
  if (typeof value !== 'object' || Array.isArray(value)) {
    throw invalid(source, ['must be a map of variable names to values']);
  }
  const names = new Set(known);
  const problems: string[] = [];
  const variables: Record<string, string> = {};
  for (const [name, entry] of Object.entries(value)) {
    if (!names.has(name)) problems.push(`${name} is no variable of these actors`);
    else if (!isScalar(entry)) problems.push(`${name} must be a text, number or truth value`);
    else variables[name] = String(entry);
  }
  if (problems.length > 0) throw invalid(source, problems);
  return variables;
}

function isScalar(value: unknown): value is string | number | boolean {
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean';
}

function invalid(source: string, problems: readonly string[]): MeshError {
  return new MeshError('CONFIG_INVALID', `${source}: ${problems.join('; ')}`, {
    detail: { problems: problems.length },
  });
}
