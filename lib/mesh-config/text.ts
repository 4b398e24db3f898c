/** The text of a MeshConfig. Pure. */
import * as z from 'zod';
import { yaml } from '../config/yaml.ts';
import { MeshError } from '../errors/mesh-error.ts';
import { tryParseSpiffe } from '../net/spiffe.ts';

/** The ConfigMap in the system namespace that holds the MeshConfig, and its key; Istio's names. */
export const MESH_CONFIG_MAP = { name: 'istio', key: 'mesh' } as const;

/** A trust domain that identities can hold. */
export const trustDomainField = z
  .string()
  .refine(
    (text) => tryParseSpiffe(`spiffe://${text}/ns/a/sa/b`) !== null,
    'must consist of letters, digits, dots, dashes and underscores',
  );

/** The place of the MeshConfig, for messages. */
export function meshConfigMap(namespace: string): string {
  return `ConfigMap ${namespace}/${MESH_CONFIG_MAP.name}, ${MESH_CONFIG_MAP.key}`;
}

/**
 * Reads the YAML of a MeshConfig by the schema of the fields in use. `value` is the whole of it. Throws CONFIG_INVALID that names
 * the place, the field and the reason.
 */
export function parseMeshConfig<Schema extends z.ZodType>(
  schema: Schema,
  source: string,
  text: string,
): { readonly config: z.output<Schema>; readonly value: object } {
  const document = yaml().parseDocument(text);
  const fault = document.errors[0];
  if (fault !== undefined) throw invalid(source, '', fault.message.split('\n')[0] ?? '');
  const isEmpty = document.contents === null || isEmptyText(document.contents);
  const value: unknown = isEmpty ? {} : document.toJS();
  const result = schema.safeParse(value);
  if (result.success) return { config: result.data, value: value as object };
  const issue = result.error.issues[0];
  throw invalid(source, issue?.path.join('.') ?? '', issue?.message ?? 'is invalid');
}

function isEmptyText(contents: unknown): boolean {
  return yaml().isScalar(contents) && (contents.value === null || contents.value === '');
}

function invalid(source: string, path: string, reason: string): MeshError {
  const place = path === '' ? source : `${source}, ${path}`;
  return new MeshError('CONFIG_INVALID', `${place}: ${reason}`, { detail: { field: path } });
}
