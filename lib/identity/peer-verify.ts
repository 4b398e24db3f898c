/**
 * Who a peer is, by the rules of docs/spec/hbone.md §3. The certificate path itself is verified before: by the TLS
 * stack on a connection, by {@link verifyChain} where there is none.
 */
import type { X509Certificate } from 'node:crypto';
import { MeshError } from '../errors/mesh-error.ts';
import { parseSpiffe, tryParseSpiffe } from '../net/spiffe.ts';

/** A path longer than this is refused rather than searched. */
const MAX_PATH_LENGTH = 8;

/**
 * Signatures checked for one path, some 0.1 ms each. Names and key ids tell authorities apart before that, so that a real
 * search needs one for each certificate; more are needed only where many authorities share a name and a key.
 */
const MAX_SIGNATURE_CHECKS = 64;

/** A peer with more names than this is not one of ours; bounds the work a stranger can cause. */
const MAX_NAMES = 256;

/**
 * The SPIFFE identities a certificate carries, in order. URIs of another form and other kinds of names are left
 * out; so is everything when the names cannot be read.
 */
export function peerIdentities(certificate: X509Certificate): string[] {
  return uriAltNames(certificate.subjectAltName).filter((uri) => tryParseSpiffe(uri) !== null);
}

/**
 * The server's rule for a client: some identity has the trust domain of the server's own. Returns the client's
 * identity, its first one. Throws TLS_PEER_IDENTITY that says what was found.
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
 * The client's rule for a server: some identity of the server is an expected one. Returns the identity that
 * matched. An empty list always fails. Throws TLS_PEER_IDENTITY that says what was found and expected.
 */
export function verifyServerIdentity(server: X509Certificate, expected: readonly string[]): string {
  const identities = peerIdentities(server);
  const match = identities.find((identity) => expected.includes(identity));
  if (match !== undefined) return match;
  throw new MeshError(
    'TLS_PEER_IDENTITY',
    `the server is not who it should be: its certificate names ${listed(identities)}, expected ${listed(expected)}`,
    { detail: { found: listed(identities), expected: listed(expected) } },
  );
}

/**
 * Verifies that `leaf` leads over `intermediates` to one of `roots`, each valid at `atMs`; returns the shortest such
 * path, leaf first and root last. Tries every certificate that may have issued another, because a renewed authority keeps
 * its name and often its key. Throws IDENTITY_INVALID that names the first obstacle.
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
    const current = path.at(-1) ?? leaf;
    const root = search.first(current, roots);
    if (root !== undefined) return [...path, root];
    for (const next of search.all(current, intermediates)) {
      if (met.has(next.fingerprint256)) continue;
      met.add(next.fingerprint256);
      if (path.length === MAX_PATH_LENGTH)
        search.note(`the certificate path is longer than ${MAX_PATH_LENGTH}`);
      else paths.push([...path, next]);
    }
    search.note(
      `the certificate does not lead to a trusted root: no known issuer ${oneLine(current.issuer)}`,
    );
  }
  throw new MeshError('IDENTITY_INVALID', search.obstacle ?? 'the certificate has no path');
}

/** Finds the issuers of certificates, with a bound on signatures checked; keeps the first reason against a path. */
class IssuerSearch {
  /** Null while nothing stood in the way. */
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

  /** The first that has issued `subject`. Throws like {@link verifyChain} when too much is tried. */
  first(
    subject: X509Certificate,
    candidates: readonly X509Certificate[],
  ): X509Certificate | undefined {
    return candidates.find((candidate) => this.#hasIssued(candidate, subject));
  }

  /** All that have issued `subject`. Throws like {@link verifyChain} when too much is tried. */
  all(subject: X509Certificate, candidates: readonly X509Certificate[]): X509Certificate[] {
    return candidates.filter((candidate) => this.#hasIssued(candidate, subject));
  }

  #hasIssued(issuer: X509Certificate, subject: X509Certificate): boolean {
    if (!issuer.ca || !subject.checkIssued(issuer)) return false;
    const problem = validityProblem(issuer, this.#atMs);
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

/** Certificates that a peer may present besides its own; what it may send in all is bounded by TLS. */
const MAX_PRESENTED = 32;

/** What the peer of a TLS connection presented besides its leaf, in the order it came. */
export function presentedIssuers(leaf: X509Certificate): X509Certificate[] {
  const issuers: X509Certificate[] = [];
  let next = leaf.issuerCertificate;
  while (next !== undefined && issuers.length < MAX_PRESENTED) {
    issuers.push(next);
    next = next.issuerCertificate;
  }
  return issuers;
}

/** The URI entries of node:crypto's text form of a subject alternative name, where unusual values are quoted. */
export function uriAltNames(subjectAltName: string | undefined): string[] {
  if (subjectAltName === undefined) return [];
  const entry = /([^:",]+):("(?:[^"\\]|\\.)*"|[^",]*)(?:, |$)/y;
  const uris: string[] = [];
  for (let count = 0; entry.lastIndex < subjectAltName.length; count += 1) {
    const match = entry.exec(subjectAltName);
    // Names that cannot be told apart are no names.
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

/** Why the certificate may not be used at `atMs`; null when it may. */
function validityProblem(certificate: X509Certificate, atMs: number): string | null {
  const from = certificate.validFromDate.getTime();
  const to = certificate.validToDate.getTime();
  if (atMs >= from && atMs <= to) return null;
  const what = certificate.ca ? `the authority ${oneLine(certificate.subject)}` : 'the certificate';
  return atMs < from
    ? `${what} is not valid before ${certificate.validFrom}`
    : `${what} expired at ${certificate.validTo}`;
}

function listed(names: readonly string[]): string {
  return names.length === 0 ? 'no identity' : names.slice(0, 8).join(', ');
}

/** Node gives undefined for an empty name, against its types. */
function oneLine(name: string | undefined): string {
  return name === undefined ? 'without a name' : name.replaceAll('\n', ', ');
}
