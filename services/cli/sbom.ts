/** Lists the parts of an installation as a CycloneDX document: npm's list, and the parts that npm does not know. Pure. */
import * as z from 'zod';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';

/** npm's mark of packages that only builds and tests need. */
const DEVELOPMENT = 'cdx:npm:package:development';

/** The fields read of the document of `npm sbom`; other fields are copied. */
const npmDocument = z.looseObject({
  bomFormat: z.literal('CycloneDX'),
  metadata: z.looseObject({}),
  components: z.array(
    z.looseObject({
      'bom-ref': z.string(),
      purl: z.string(),
      properties: z.array(z.looseObject({ name: z.string(), value: z.string() })).default([]),
    }),
  ),
  dependencies: z.array(z.looseObject({ ref: z.string(), dependsOn: z.array(z.string()) })),
});

/** The sources of a document. */
export interface SbomInput {
  readonly name: string;
  readonly version: string;
  /** RFC 3339. */
  readonly timestamp: string;
  readonly serial: string;
  /** The document of `npm sbom`, development packages included. */
  readonly npm: string;
  /** Text of `/var/lib/dpkg/status`; null without that file. */
  readonly dpkg: string | null;
  /** `process.versions`: the libraries inside Node's binary. */
  readonly bundled: Readonly<Record<string, string | undefined>>;
}

/** Makes the document, without packages that only builds and tests need. Throws CONFIG_INVALID when npm's part does not parse. */
export function sbomOf(input: SbomInput): Record<string, unknown> {
  const npm = parsed(input.npm);
  const { name, version } = input;
  const installed = npm.components.filter(
    ({ properties }) => !properties.some((one) => one.name === DEVELOPMENT && one.value === 'true'),
  );
  const self = `${name}@${version}`;
  const refs = new Set([self, ...installed.map((one) => one['bom-ref'])]);
  return {
    ...npm,
    serialNumber: `urn:uuid:${input.serial}`,
    metadata: {
      ...npm.metadata,
      timestamp: input.timestamp,
      component: { type: 'application', name, version, 'bom-ref': self },
    },
    components: [
      ...installed,
      ...bundledComponents(input.bundled),
      ...(input.dpkg === null ? [] : debianComponents(input.dpkg)),
    ].toSorted((left, right) => (left.purl < right.purl ? -1 : 1)),
    dependencies: npm.dependencies
      .filter(({ ref }) => refs.has(ref))
      .map((one) => ({ ...one, dependsOn: one.dependsOn.filter((ref) => refs.has(ref)) })),
  };
}

function parsed(text: string): z.infer<typeof npmDocument> {
  try {
    return npmDocument.parse(JSON.parse(text));
  } catch (error) {
    throw new MeshError(
      'CONFIG_INVALID',
      `npm's part is no CycloneDX document: ${errorText(error)}`,
      {
        cause: error,
      },
    );
  }
}

interface Component {
  readonly type: 'library' | 'application';
  readonly name: string;
  readonly version: string;
  readonly purl: string;
  readonly 'bom-ref': string;
}

function bundledComponents(
  versions: Readonly<Record<string, string | undefined>>,
): readonly Component[] {
  return Object.entries(versions).flatMap(([name, version]) => {
    // The ABI number is not a library.
    if (version === undefined || name === 'modules' || name === 'napi') return [];
    const type = name === 'node' ? 'application' : 'library';
    return [component(type, name, version, `pkg:generic/${name}@${encodeURIComponent(version)}`)];
  });
}

function debianComponents(status: string): readonly Component[] {
  return status.split('\n\n').flatMap((paragraph) => {
    const field = (name: string): string =>
      new RegExp(`^${name}: (.*)$`, 'm').exec(paragraph)?.[1] ?? '';
    const name = field('Package');
    if (name === '' || !field('Status').endsWith(' installed')) return [];
    const version = field('Version');
    const purl = `pkg:deb/debian/${name}@${encodeURIComponent(version)}?arch=${field('Architecture')}`;
    return [component('library', name, version, purl)];
  });
}

function component(
  type: Component['type'],
  name: string,
  version: string,
  purl: string,
): Component {
  return { type, name, version, purl, 'bom-ref': purl };
}
