/** Reads the local configuration file (docs/spec/control.md §4) as resources of the workload API. */
import type { CollectionTag, ScalarTag } from 'yaml';
import { yaml } from '../../config/yaml.ts';
import { MeshError, errorText } from '../../errors/mesh-error.ts';
import { encodeService, encodeWorkload, resourceName } from '../resources/address.ts';
import { encodeAuthorization } from '../resources/authorization.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../type-urls.ts';
import type { ResourceType } from '../type-urls.ts';
import { toAuthorization, toService, toWorkload } from './convert.ts';
import { TaggedMatch, localFileSchema } from './schema.ts';

/** A resource of the file, named and encoded as by a control plane. */
export interface LocalFileResource {
  readonly type: ResourceType;
  readonly name: string;
  readonly bytes: Uint8Array;
}

const scalarTag = (tag: string, kind: 'exact' | 'prefix' | 'suffix'): ScalarTag => ({
  tag,
  resolve: (value) => new TaggedMatch({ kind, value }),
});

const presenceTag: CollectionTag = {
  tag: '!Presence',
  collection: 'seq',
  resolve: () => new TaggedMatch({ kind: 'presence' }),
};

const customTags = [
  scalarTag('!Exact', 'exact'),
  scalarTag('!Prefix', 'prefix'),
  scalarTag('!Suffix', 'suffix'),
  presenceTag,
];

/** Parses the text of a local file. Throws CONFIG_INVALID that names `source` and the line or field of every problem. */
export function parseLocalFile(text: string, source: string): readonly LocalFileResource[] {
  const document = yaml().parseDocument(text, { customTags, prettyErrors: true, uniqueKeys: true });
  const problems = [...document.errors, ...document.warnings].map((error) => error.message.trim());
  if (problems.length > 0) throw invalid(source, problems);
  const parsed = localFileSchema.safeParse(document.toJS() ?? {});
  if (!parsed.success) {
    throw invalid(
      source,
      parsed.error.issues.map((issue) => `${fieldPath(issue.path)}: ${issue.message}`),
    );
  }
  const { workloads, services, policies } = parsed.data;
  const failures: string[] = [];
  const convert = <Local>(
    list: string,
    locals: readonly Local[],
    encode: (local: Local) => LocalFileResource,
  ): LocalFileResource[] =>
    locals.flatMap((local, index) => {
      try {
        return [encode(local)];
      } catch (error) {
        failures.push(`${list}[${index}]: ${errorText(error)}`);
        return [];
      }
    });
  const resources = [
    ...convert('workloads', workloads, (local) => {
      const workload = toWorkload(local);
      return address(resourceName(workload), encodeWorkload(workload));
    }),
    ...convert('services', services, (local) => {
      const service = toService(local);
      return address(resourceName(service), encodeService(service));
    }),
    ...convert('policies', policies, (local) => ({
      type: AUTHORIZATION_TYPE,
      name: `${local.namespace}/${local.name}`,
      bytes: encodeAuthorization(toAuthorization(local)),
    })),
  ];
  failures.push(...duplicates(resources));
  if (failures.length > 0) throw invalid(source, failures);
  return resources;
}

function address(name: string, bytes: Uint8Array): LocalFileResource {
  return { type: ADDRESS_TYPE, name, bytes };
}

function duplicates(resources: readonly LocalFileResource[]): string[] {
  const seen = new Set<string>();
  const twice = new Set<string>();
  for (const { type, name } of resources) {
    const key = `${type} ${name}`;
    if (seen.has(key)) twice.add(name);
    seen.add(key);
  }
  return [...twice].map((name) => `${name} is defined twice`);
}

/** `policies[0].rules[0]`. */
function fieldPath(path: readonly PropertyKey[]): string {
  const parts = path.map((part) => (typeof part === 'number' ? `[${part}]` : `.${String(part)}`));
  return parts.length === 0 ? 'the file' : parts.join('').replace(/^\./, '');
}

function invalid(source: string, problems: readonly string[]): MeshError {
  return new MeshError('CONFIG_INVALID', `${source}: ${problems.join('; ')}`, {
    detail: { source, problems: problems.length },
  });
}
