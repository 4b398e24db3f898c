/** The roots that verify the mesh's certificates; other roots may secure the connection to the CA. */
import type { X509Certificate } from 'node:crypto';
import { rootCertificates } from 'node:tls';
import { text } from '../config/fields.ts';
import { MeshError } from '../errors/mesh-error.ts';
import { parseCertificates } from '../tls/pem.ts';
import { parseRootSource } from '../tls/roots.ts';
import type { RootSource } from '../tls/roots.ts';
import { TrustBundle } from './trust-bundle.ts';
import type { TrustBundleDeps } from './trust-bundle.ts';

/** Where Istio mounts the ConfigMap `istio-ca-root-cert` (docs/spec/control.md §1). */
const MOUNTED_ROOT_PATH = './var/run/secrets/istio/root-cert.pem';

/** Settings of the actors that verify certificates of the mesh. */
export const rootVariables = {
  CA_ROOT_CA: {
    schema: text({ default: MOUNTED_ROOT_PATH }),
    description: "roots of the CA's server: a path, SYSTEM, or PEM",
  },
  WEFT_MESH_ROOT_CA: {
    schema: text({ optional: true }),
    description: `roots that peers and certificates of the mesh are verified against: a path or PEM; default CA_ROOT_CA, and ${MOUNTED_ROOT_PATH} where that is SYSTEM`,
    when: "the CA's server certificate comes from another authority than the mesh",
  },
} as const;

/** The parsed values of {@link rootVariables}. */
export interface RootValues {
  readonly CA_ROOT_CA: string;
  readonly WEFT_MESH_ROOT_CA: string | null;
}

/**
 * The source of the mesh's roots. Throws CONFIG_INVALID for public roots: with them, everybody with a certificate of a
 * public authority would be a peer.
 */
export function meshRoots(values: RootValues): RootSource {
  const caRoots = parseRootSource(values.CA_ROOT_CA);
  const fallback = caRoots.kind === 'system' ? MOUNTED_ROOT_PATH : values.CA_ROOT_CA;
  const source = parseRootSource(values.WEFT_MESH_ROOT_CA ?? fallback);
  if (source.kind === 'system') {
    throw new MeshError(
      'CONFIG_INVALID',
      'WEFT_MESH_ROOT_CA must be a path or PEM, not SYSTEM: peers would be verified against public roots',
    );
  }
  if (source.kind === 'pem') {
    refusePublicRoots(parseCertificates(source.pem, 'the roots of the mesh'));
  }
  return source;
}

/** Makes the mesh's trust bundle, which refuses public roots. The owner closes it. */
export function meshBundle(
  source: RootSource,
  { clock, log }: Pick<TrustBundleDeps, 'clock' | 'log'>,
): TrustBundle {
  return new TrustBundle(source, { clock, log, check: refusePublicRoots });
}

/**
 * Throws CONFIG_INVALID that names the first public root, by Node's list of them. The machine's own store is not used,
 * because it may hold the mesh's private root.
 */
function refusePublicRoots(roots: readonly X509Certificate[]): void {
  const known = publicRoots();
  const found = roots.find((root) => known.has(base64Of(root)));
  if (found === undefined) return;
  const name = found.subject.replaceAll('\n', ', ');
  throw new MeshError(
    'CONFIG_INVALID',
    `peers would be verified against a public root, ${name}: set WEFT_MESH_ROOT_CA to the roots of the mesh (CA_ROOT_CA is for the CA's server)`,
  );
}

/** Builds the set for each reading: readings are rare, and the set takes some 250 kB. */
function publicRoots(): ReadonlySet<string> {
  return new Set(rootCertificates.map((pem) => pem.replaceAll(/-----[^-]+-----|\s/g, '')));
}

function base64Of(certificate: X509Certificate): string {
  return certificate.raw.toString('base64');
}
