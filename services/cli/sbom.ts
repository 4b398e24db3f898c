/** Pure: what an installation consists of, as a CycloneDX document. */
import { z } from 'zod';

/** The edition of CycloneDX that is written. */
const SPEC_VERSION = '1.5';

/** What npm says it installed: `node_modules/.package-lock.json`. */
const installedPackages = z.looseObject({
  packages: z.record(
    z.string(),
    z.looseObject({
      version: z.string().default(''),
      integrity: z.string().optional(),
      license: z.string().optional(),
      dev: z.boolean().default(false),
    }),
  ),
});

/** A part of the installation. */
export interface SbomComponent {
  readonly type: 'library' | 'application' | 'operating-system';
  readonly name: string;
  readonly version: string;
  readonly purl: string;
  readonly 'bom-ref': string;
  readonly licenses?: readonly { readonly expression: string }[];
  readonly hashes?: readonly { readonly alg: string; readonly content: string }[];
}

/** What goes into a document. */
export interface SbomInput {
  readonly name: string;
  readonly version: string;
  /** RFC 3339. */
  readonly timestamp: string;
  readonly serial: string;
  /** Text of npm's own list. */
  readonly npm: string;
  /** Text of `/var/lib/dpkg/status`; null where there is none. */
  readonly dpkg: string | null;
  /** `process.versions`: what Node.js brings inside its binary. */
  readonly bundled: Readonly<Record<string, string | undefined>>;
}

/** The document. Throws what npm's list has wrong. */
export function sbomOf(input: SbomInput): Record<string, unknown> {
  return {
    bomFormat: 'CycloneDX',
    specVersion: SPEC_VERSION,
    serialNumber: `urn:uuid:${input.serial}`,
    version: 1,
    metadata: {
      timestamp: input.timestamp,
      component: {
        type: 'application',
        name: input.name,
        version: input.version,
        'bom-ref': `${input.name}@${input.version}`,
      },
    },
    components: [
      ...npmComponents(input.npm),
      ...bundledComponents(input.bundled),
      ...(input.dpkg === null ? [] : debianComponents(input.dpkg)),
    ].toSorted((left, right) => (left.purl < right.purl ? -1 : 1)),
  };
}

function npmComponents(text: string): readonly SbomComponent[] {
  const { packages } = installedPackages.parse(JSON.parse(text));
  return Object.entries(packages)
    .filter(([path, { dev }]) => path !== '' && !dev)
    .map(([path, { version, license, integrity }]) => {
      const name = path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length);
      const purl = `pkg:npm/${name.replace('@', '%40')}@${encodeURIComponent(version)}`;
      return {
        ...component('library', name, version, purl, path),
        ...(license === undefined ? {} : { licenses: [{ expression: license }] }),
        ...hashes(integrity),
      };
    });
}

/** `sha512-<base64>` as npm writes it. */
function hashes(integrity: string | undefined): Pick<SbomComponent, 'hashes'> {
  const encoded = /^sha512-(?<digest>\S+)/.exec(integrity ?? '')?.groups?.['digest'];
  if (encoded === undefined) return {};
  return { hashes: [{ alg: 'SHA-512', content: Buffer.from(encoded, 'base64').toString('hex') }] };
}

function bundledComponents(
  versions: Readonly<Record<string, string | undefined>>,
): readonly SbomComponent[] {
  return Object.entries(versions).flatMap(([name, version]) => {
    // A number of the binary interface is no part.
    if (version === undefined || name === 'modules' || name === 'napi') return [];
    const type = name === 'node' ? 'application' : 'library';
    return [component(type, name, version, `pkg:generic/${name}@${encodeURIComponent(version)}`)];
  });
}

function debianComponents(status: string): readonly SbomComponent[] {
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

/** Two copies of a package in different places have the same address; `place` tells them apart. */
function component(
  type: SbomComponent['type'],
  name: string,
  version: string,
  purl: string,
  place = '',
): SbomComponent {
  return { type, name, version, purl, 'bom-ref': place === '' ? purl : `${purl}#${place}` };
}
