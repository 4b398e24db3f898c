import { MeshError } from '../errors/mesh-error.ts';

/** A workload's identity, `spiffe://<trustDomain>/ns/<namespace>/sa/<serviceAccount>`. */
export interface SpiffeId {
  readonly trustDomain: string;
  readonly namespace: string;
  readonly serviceAccount: string;
}

const SCHEME = 'spiffe://';

/** Characters the SPIFFE standard allows in a trust domain or path segment; upper case stays significant. */
const SEGMENT = /^[A-Za-z0-9._-]+$/;

/** The SPIFFE standard's limit on an identity. */
const MAX_LENGTH_BYTES = 2048;

/**
 * Parses the one form that docs/spec/hbone.md §3 accepts: five segments after the scheme, none empty, no query,
 * fragment, port or escapes. Throws IDENTITY_INVALID that names the text and what is wrong with it.
 */
export function parseSpiffe(uri: string): SpiffeId {
  const id = tryParseSpiffe(uri);
  if (id === null) {
    throw new MeshError(
      'IDENTITY_INVALID',
      `not a workload identity of the form spiffe://<trust domain>/ns/<namespace>/sa/<service account>: ${JSON.stringify(uri.slice(0, 256))}`,
    );
  }
  return id;
}

/** Like {@link parseSpiffe}, null when the text is not an identity; for peers, whose foreign SANs are skipped. */
export function tryParseSpiffe(uri: string): SpiffeId | null {
  if (uri.length > MAX_LENGTH_BYTES || !uri.startsWith(SCHEME)) return null;
  const segments = uri.slice(SCHEME.length).split('/');
  const [trustDomain, ns, namespace, sa, serviceAccount] = segments;
  if (segments.length !== 5 || ns !== 'ns' || sa !== 'sa') return null;
  if (!isSegment(trustDomain) || !isSegment(namespace) || !isSegment(serviceAccount)) return null;
  return { trustDomain, namespace, serviceAccount };
}

/**
 * The identity a workload's certificate carries. Names that no identity can hold give a text that no peer ever presents, so
 * such a workload is never connected to by mistake.
 */
export function workloadIdentity(id: SpiffeId): string {
  return `${SCHEME}${id.trustDomain}/ns/${id.namespace}/sa/${id.serviceAccount}`;
}

/** The text form. Throws IDENTITY_INVALID when a part could not be parsed back. */
export function formatSpiffe(id: SpiffeId): string {
  const uri = workloadIdentity(id);
  parseSpiffe(uri);
  return uri;
}

function isSegment(segment: string | undefined): segment is string {
  return segment !== undefined && SEGMENT.test(segment) && segment !== '.' && segment !== '..';
}
