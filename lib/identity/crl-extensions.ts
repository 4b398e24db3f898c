import { MeshError } from '../errors/mesh-error.ts';
import { derElements, oid, toDer } from './asn1.ts';
import type { DerElement } from './asn1.ts';

/** Extensions that may be marked critical because what they say does not change who is revoked. */
const UNDERSTOOD: Readonly<Record<'list' | 'entry', ReadonlySet<string>>> = {
  // CRL number, authority key id, issuer's other names.
  list: encoded('2.5.29.20', '2.5.29.35', '2.5.29.18'),
  // Reason, invalidity date.
  entry: encoded('2.5.29.21', '2.5.29.24'),
};

/**
 * A delta list names only changes, and an indirect one certificates of other issuers: read as a complete list either
 * would be wrong, also where it is not marked critical.
 */
const REFUSED: ReadonlyMap<string, string> = new Map([
  [hex('2.5.29.27'), 'is a delta list'],
  [hex('2.5.29.29'), 'is an indirect list'],
]);

/** Says which certificates a list is about; refused when they may be those of others. */
const DISTRIBUTION_POINT = hex('2.5.29.28');

/** `[4] TRUE` in a distribution point: the list is an indirect one. */
const INDIRECT = 0x84;

const OBJECT_ID = 0x06;
const BOOLEAN = 0x01;
const SEQUENCE = 0x30;

/** Throws IDENTITY_INVALID when the extensions change what the list means in a way that is not understood. */
export function refuseCritical(
  der: Buffer,
  extensions: DerElement | undefined,
  kind: 'list' | 'entry',
  what: string,
): void {
  if (extensions?.tag !== SEQUENCE) {
    throw new MeshError('IDENTITY_INVALID', `${what}: its extensions are malformed`);
  }
  for (const extension of derElements(der, extensions.start, extensions.end, what)) {
    const [id, second, third] = derElements(der, extension.start, extension.end, what);
    if (extension.tag !== SEQUENCE || id?.tag !== OBJECT_ID || second === undefined) {
      throw new MeshError('IDENTITY_INVALID', `${what}: an extension is malformed`);
    }
    const name = der.toString('hex', id.offset, id.end);
    const refused = REFUSED.get(name);
    if (refused !== undefined) throw new MeshError('IDENTITY_INVALID', `${what} ${refused}`);
    if (name === DISTRIBUTION_POINT) {
      checkDistributionPoint(der, third ?? second, what);
      continue;
    }
    const critical = second.tag === BOOLEAN && der[second.start] !== 0;
    if (critical && !UNDERSTOOD[kind].has(name)) {
      throw new MeshError(
        'IDENTITY_INVALID',
        `${what} has a critical extension that is not understood (${name})`,
      );
    }
  }
}

/** A list for some of an issuer's certificates is used: those it lists are revoked all the same. */
function checkDistributionPoint(der: Buffer, value: DerElement, what: string): void {
  const [point] = derElements(der, value.start, value.end, what);
  if (point?.tag !== SEQUENCE) {
    throw new MeshError('IDENTITY_INVALID', `${what}: its distribution point is malformed`);
  }
  for (const part of derElements(der, point.start, point.end, what)) {
    if (part.tag === INDIRECT && der[part.start] !== 0) {
      throw new MeshError('IDENTITY_INVALID', `${what} is an indirect list`);
    }
  }
}

function encoded(...dotted: readonly string[]): ReadonlySet<string> {
  return new Set(dotted.map(hex));
}

function hex(dotted: string): string {
  return toDer(oid(dotted)).toString('hex');
}
