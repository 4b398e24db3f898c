/**
 * Checks the identity of a peer (docs/spec/hbone.md §3). The certificate path is verified before: by the TLS stack for a
 * connection, by {@link verifyChain} elsewhere.
 */
import type { X509Certificate } from 'node:crypto';
import { MeshError } from '../errors/mesh-error.ts';
import { authorityLimits } from './certificate-fields.ts';
import { parseSpiffe, tryParseSpiffe } from '../net/spiffe.ts';

/** Longest path; a longer one is refused. */
const MAX_PATH_LENGTH = 8;

/**
 * Most signature checks for one path, some 0.1 ms each. Names and key ids are compared before, so that a real search checks
 * one signature for each certificate; more are needed only where many authorities share a name and a key.
 */
const MAX_SIGNATURE_CHECKS = 64;

/** Most names in a certificate of the mesh; bounds the work that a stranger can cause. */
const MAX_NAMES = 256;

/**
 * Returns the SPIFFE identities of a certificate, in order. Other names are left out; a list of names that cannot be read
 * gives no identity.
 */
export function peerIdentities(certificate: X509Certificate): string[] {
  return uriAltNames(certificate.subjectAltName).filter((uri) => tryParseSpiffe(uri) !== null);
}

/**
 * Checks a client: one of its identities must have the server's trust domain. Returns the client's first identity. Throws
 * TLS_PEER_IDENTITY that names the identities found.
 */
export function verifyClientIdentity(client: X509Certificate, ownIdentity: string): string {
  const { trustDomain } = parseSpiffe(ownIdentity);
  const identities = peerIdentities(client);
  const [first] = identities;
  if (
    first !== undefined &&
    identities.some((identity) => tryParseSpiffe(identity)?.trustDomain === trustDomain)
  ) {
    return first;
  }
  throw new MeshError(
    'TLS_PEER_IDENTITY',
    `the client is not of the trust domain ${trustDomain}: its certificate names ${listed(identities)}`,
    { detail: { trustDomain, found: listed(identities) } },
  );
}

/**
 * Checks a server: one of its identities must be expected. Returns the identity that matched. An empty list always fails.
 * Throws TLS_PEER_IDENTITY that names the identities found and expected.
 */
export function verifyServerIdentity(server: X509Certificate, expected: readonly string[]): string {
  const identities = peerIdentities(server);
  const match = identities.find((identity) => expected.includes(identity));
  if (match !== undefined) return match;
  throw new MeshError(
    'TLS_PEER_IDENTITY',
    `the server has none of the expected identities: its certificate names ${listed(identities)}, expected ${listed(expected)}`,
    { detail: { found: listed(identities), expected: listed(expected) } },
  );
}

/**
 * Verifies that `leaf` leads over `intermediates` to one of `roots`, each valid at `atMs`; returns the shortest such
 * path, leaf first and root last. Tries every certificate that may have issued another, because a renewed authority keeps
 * its name and often its key. Refuses authorities that limit names, since it cannot apply such limits. Throws
 * IDENTITY_INVALID that names the first obstacle.
 */
export function verifyChain(
  leaf: X509Certificate,
  intermediates: readonly X509Certificate[],
  roots: readonly X509Certificate[],
  atMs: number,
): X509Certificate[] {
  checkValidAt(leaf, atMs);
  const search = new IssuerSearch(atMs);
  const met = new Set([leaf.fingerprint256]);
  const paths: X509Certificate[][] = [[leaf]];
  // Grows while it is walked: shorter paths come before longer ones.
  for (const path of paths) {
    const root = search.first(path, roots);
    if (root !== undefined) return [...path, root];
    for (const next of search.all(path, intermediates)) {
      if (met.has(next.fingerprint256)) continue;
      met.add(next.fingerprint256);
      if (path.length === MAX_PATH_LENGTH)
        search.note(`the certificate path is longer than ${MAX_PATH_LENGTH}`);
      else paths.push([...path, next]);
    }
  }
  const { issuer } = paths.at(-1)?.at(-1) ?? leaf;
  const why = `the certificate does not lead to a trusted root: no known issuer ${oneLine(issuer)}`;
  throw new MeshError('IDENTITY_INVALID', search.obstacle ?? why);
}

/** Certificates, each issued by the next. */
type Path = readonly X509Certificate[];

/** Finds the issuers of certificates with a bounded number of signature checks; keeps the first obstacle. */
class IssuerSearch {
  /** Null while there is none. */
  obstacle: string | null = null;
  readonly #atMs: number;
  #checks = 0;

  constructor(atMs: number) {
    this.#atMs = atMs;
  }

  /** Keeps the reason unless there is an earlier one. */
  note(reason: string): void {
    this.obstacle ??= reason;
  }

  /** Returns the first issuer of the last certificate of a path. Throws like {@link verifyChain} after too many checks. */
  first(path: Path, candidates: readonly X509Certificate[]): X509Certificate | undefined {
    return candidates.find((candidate) => this.#continues(path, candidate));
  }

  /** Returns all issuers of the last certificate of a path. Throws like {@link verifyChain} after too many checks. */
  all(path: Path, candidates: readonly X509Certificate[]): X509Certificate[] {
    return candidates.filter((candidate) => this.#continues(path, candidate));
  }

  #continues(path: Path, issuer: X509Certificate): boolean {
    const subject = path.at(-1);
    if (subject === undefined || !issuer.ca || !subject.checkIssued(issuer)) return false;
    const problem = validityProblem(issuer, this.#atMs) ?? limitProblem(issuer, path);
    if (problem !== null) {
      this.note(problem);
      return false;
    }
    this.#checks += 1;
    if (this.#checks > MAX_SIGNATURE_CHECKS) {
      throw new MeshError(
        'IDENTITY_INVALID',
        `the certificate path is not found with ${MAX_SIGNATURE_CHECKS} signatures checked`,
      );
    }
    return subject.verify(issuer.publicKey);
  }
}

/** Most certificates that are read besides the peer's own; TLS bounds their bytes. */
const MAX_PRESENTED = 32;

/** Returns the certificates that a TLS peer presented besides its leaf, in their order. */
export function presentedIssuers(leaf: X509Certificate): X509Certificate[] {
  const issuers: X509Certificate[] = [];
  let next = leaf.issuerCertificate;
  while (next !== undefined && issuers.length < MAX_PRESENTED) {
    issuers.push(next);
    next = next.issuerCertificate;
  }
  return issuers;
}

/** Returns the URIs in node:crypto's text form of a subject alternative name, which quotes unusual values. */
export function uriAltNames(subjectAltName: string | undefined): string[] {
  if (subjectAltName === undefined) return [];
  const entry = /([^:",]+):("(?:[^"\\]|\\.)*"|[^",]*)(?:, |$)/y;
  const uris: string[] = [];
  for (let count = 0; entry.lastIndex < subjectAltName.length; count += 1) {
    const match = entry.exec(subjectAltName);
    // A text that cannot be split for certain gives no names.
    if (match === null || count >= MAX_NAMES) return [];
    const [, kind, value = ''] = match;
    if (kind === 'URI' && !value.startsWith('"')) uris.push(value);
  }
  return uris;
}

function checkValidAt(certificate: X509Certificate, atMs: number): void {
  const problem = validityProblem(certificate, atMs);
  if (problem !== null) throw new MeshError('IDENTITY_INVALID', problem);
}

/** The reason why the certificate is not valid at `atMs`; null when it is. */
function validityProblem(certificate: X509Certificate, atMs: number): string | null {
  const from = certificate.validFromDate.getTime();
  const to = certificate.validToDate.getTime();
  if (atMs >= from && atMs <= to) return null;
  const what = certificate.ca ? `the authority ${oneLine(certificate.subject)}` : 'the certificate';
  return atMs < from
    ? `${what} is not valid before ${certificate.validFrom}, ${Math.ceil((from - atMs) / 1000)} s from now: the clocks here and at its issuer differ by at least that`
    : `${what} expired at ${certificate.validTo}`;
}

/** The reason why the authority may not issue the last certificate of a path, leaf first; null when it may. */
function limitProblem(authority: X509Certificate, [, ...between]: Path): string | null {
  const { pathLength, limitsNames } = authorityLimits(authority);
  const name = oneLine(authority.subject);
  if (limitsNames) return `the authority ${name} has name constraints, which are not supported`;
  // RFC 5280 §4.2.1.9: certificates that an authority issues to itself, as when it changes its key, do not count.
  const count = between.filter(({ subject, issuer }) => subject !== issuer).length;
  if (pathLength === null || count <= pathLength) return null;
  return `the authority ${name} allows ${pathLength} authorities below it, and the path has ${count}`;
}

function listed(names: readonly string[]): string {
  return names.length === 0 ? 'no identity' : names.slice(0, 8).join(', ');
}

/** Node gives undefined for an empty name, against its types. */
function oneLine(name: string | undefined): string {
  return name === undefined ? 'without a name' : name.replaceAll('\n', ', ');
}
