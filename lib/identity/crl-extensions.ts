import { MeshError } from '../errors/mesh-error.ts';
import { derElements, oid, toDer } from './asn1.ts';
import type { DerElement } from './asn1.ts';

/** Extensions that may be critical because they do not change which certificates are revoked. */
const UNDERSTOOD: Readonly<Record<'list' | 'entry', ReadonlySet<string>>> = {
  // CRL number, authority key id, issuer's other names.
  list: encoded('2.5.29.20', '2.5.29.35', '2.5.29.18'),
  // Reason, invalidity date.
  entry: encoded('2.5.29.21', '2.5.29.24'),
};

/**
 * Extensions that refuse a list even where they are not critical. A delta list holds only changes, and an indirect list
 * holds certificates of other issuers; neither may be read as a complete list.
 */
const REFUSED: ReadonlyMap<string, string> = new Map([
  [hex('2.5.29.27'), 'is a delta list'],
  [hex('2.5.29.29'), 'is an indirect list'],
]);

/** Names the certificates that a list covers. */
const DISTRIBUTION_POINT = hex('2.5.29.28');

/** `[4] TRUE` in a distribution point marks an indirect list. */
const INDIRECT = 0x84;

const OBJECT_ID = 0x06;
const BOOLEAN = 0x01;
const SEQUENCE = 0x30;

/** Throws IDENTITY_INVALID when an extension changes the meaning of the list in an unknown way. */
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
        `${what} has an unknown critical extension (${name})`,
      );
    }
  }
}

/** Refuses an indirect list. A list for only some of an issuer's certificates is used. */
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
