import type { X509Certificate } from 'node:crypto';
import { MeshError } from '../errors/mesh-error.ts';
import { certificateFields } from './certificate-fields.ts';
import { NO_REVOCATIONS, compareSerials, serialAt } from './crl.ts';
import type { RevocationList, RevocationLists } from './crl.ts';
import { isSignedBy } from './signature.ts';

/** An authority of a verified path, with the fields that revocation lists refer to. */
export interface PathIssuer {
  readonly certificate: X509Certificate;
  /** The DER of its name, as Latin-1 text. */
  readonly name: string;
  readonly fingerprint: string;
}

/** One certificate of a verified path below its root. */
export interface PathStep {
  readonly serial: Buffer;
  readonly issuer: PathIssuer;
}

/** A verified path from the leaf up; the root has no step, because it is trusted by itself. */
export type IssuedPath = readonly PathStep[];

/** Most authorities in each cache; a mesh has a handful. */
const MAX_KNOWN_ISSUERS = 1_024;

/**
 * Answers from the revocation lists in force. A list counts for an authority only when the authority's key signed it, so
 * that a list of another authority with the same name revokes nothing. A certificate without a list counts as not revoked,
 * and an overdue list stays in force (docs/spec/hbone.md §4).
 */
export class RevocationBook {
  readonly #issuers = new Map<string, PathIssuer>();
  #lists: RevocationLists = NO_REVOCATIONS;
  #byIssuer = new Map<string, RevocationList[]>();
  /** The lists that an authority's key signed, by the authority's fingerprint. */
  #signed = new Map<string, readonly RevocationList[]>();
  #generation = 0;

  /** Grows with every {@link replace}. */
  get generation(): number {
    return this.#generation;
  }

  /** True without any list. */
  get empty(): boolean {
    return this.#lists.lists.length === 0;
  }

  /** Replaces the lists in force. */
  replace(lists: RevocationLists): void {
    this.#lists = lists;
    this.#generation += 1;
    this.#signed = new Map();
    this.#byIssuer = new Map();
    for (const list of lists.lists) {
      const name = nameText(list.issuer);
      const known = this.#byIssuer.get(name) ?? [];
      known.push(list);
      this.#byIssuer.set(name, known);
    }
  }

  /** Returns the steps of a path of `verifyChain`. */
  steps(path: readonly X509Certificate[]): IssuedPath {
    return path.slice(0, -1).map((certificate, index) => {
      const issuer = path[index + 1];
      if (issuer === undefined) throw new MeshError('IDENTITY_INVALID', 'the path has no root');
      return { serial: certificateFields(certificate).serial, issuer: this.#issuer(issuer) };
    });
  }

  /** Returns the first step, from the leaf up, that its issuer has revoked; null when there is none. */
  revoked(path: IssuedPath): PathStep | null {
    if (this.empty) return null;
    return path.find((step) => this.isListed(step.serial, step.issuer)) ?? null;
  }

  /** Returns true when a list of the authority names the serial number. */
  isListed(serial: Buffer, issuer: PathIssuer): boolean {
    return this.listsOf(issuer).some((list) => this.#holds(list, serial));
  }

  /** Returns the lists that the authority's own key signed. */
  listsOf(issuer: PathIssuer): readonly RevocationList[] {
    const known = this.#signed.get(issuer.fingerprint);
    if (known !== undefined) return known;
    const key = issuer.certificate.publicKey;
    const lists = (this.#byIssuer.get(issuer.name) ?? []).filter((list) =>
      isSignedBy(list.algorithm, key, list.signed, list.signature),
    );
    if (this.#signed.size >= MAX_KNOWN_ISSUERS) this.#signed.clear();
    this.#signed.set(issuer.fingerprint, lists);
    return lists;
  }

  /** Returns one object for each authority, shared by all paths. */
  #issuer(certificate: X509Certificate): PathIssuer {
    const fingerprint = certificate.fingerprint256;
    const known = this.#issuers.get(fingerprint);
    if (known !== undefined) return known;
    const name = nameText(certificateFields(certificate).subject);
    const issuer = { certificate, name, fingerprint };
    if (this.#issuers.size >= MAX_KNOWN_ISSUERS) this.#issuers.clear();
    this.#issuers.set(fingerprint, issuer);
    return issuer;
  }

  #holds({ serials }: RevocationList, serial: Buffer): boolean {
    const { bytes } = this.#lists;
    let low = 0;
    let high = serials.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const order = compareSerials(serialAt(bytes, serials[middle] ?? 0), serial);
      if (order === 0) return true;
      if (order < 0) low = middle + 1;
      else high = middle;
    }
    return false;
  }
}

function nameText(der: Uint8Array): string {
  return Buffer.from(der.buffer, der.byteOffset, der.byteLength).toString('latin1');
}
