import test from 'ava';
import { assert, integer, nat, property, uint8Array } from 'fast-check';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { parseRevocationLists } from '../../lib/identity/crl.ts';
import { RevocationBook } from '../../lib/identity/revocation-book.ts';
import { issueCrl, serialOf } from '../support/crl-kit.ts';
import { createTunnelPki } from '../support/tunnel-pki.ts';

const RUNS = 3_000;

/** Anything but an error that names the list is a defect. */
function parsed(content: Uint8Array): ReturnType<typeof parseRevocationLists> | null {
  try {
    return parseRevocationLists(Buffer.from(content));
  } catch (error) {
    if (error instanceof MeshError && error.code === 'IDENTITY_INVALID') return null;
    throw error;
  }
}

test('whatever bytes the file holds, they are read or refused', (t) => {
  assert(
    property(uint8Array({ maxLength: 400 }), (bytes) => {
      parsed(bytes);
      parsed(Uint8Array.of(0x30, 0x82, bytes.length >> 8, bytes.length & 255, ...bytes));
      parsed(Buffer.from(`-----BEGIN X509 CRL-----\n${Buffer.from(bytes).toString('base64')}`));
    }),
    { numRuns: RUNS },
  );
  t.pass();
});

test('a changed list is refused or not signed: no single byte adds a revocation', async (t) => {
  const pki = await createTunnelPki();
  const web = await pki.issue('spiffe://cluster.local/ns/demo/sa/web');
  const der = await issueCrl(pki.root, { revoked: [web.chainPem, Buffer.of(1)] });
  const original = new RevocationBook();
  original.replace(parseRevocationLists(der));
  const root = pki.root.certificate;
  const issuer = original.steps([root, root])[0]?.issuer;
  if (issuer === undefined) throw new Error('no issuer');
  t.true(original.isListed(serialOf(web.chainPem), issuer));
  let refused = 0;
  assert(
    property(nat(der.length - 1), integer({ min: 1, max: 255 }), (at, change) => {
      const changed = Buffer.from(der);
      changed.writeUInt8((changed[at] ?? 0) ^ change, at);
      const lists = parsed(changed);
      if (lists === null) {
        refused += 1;
        return;
      }
      const book = new RevocationBook();
      book.replace(lists);
      if (book.isListed(Buffer.of(3), issuer))
        throw new Error('a serial number came out of thin air');
      if (!book.isListed(serialOf(web.chainPem), issuer)) return;
      // Only what the signature does not cover may differ: the encoding of the signature itself.
      if (at < der.length - 80) throw new Error(`byte ${at} is covered by the signature`);
    }),
    { numRuns: RUNS },
  );
  t.true(refused > 0);
});

test('a list cut anywhere is refused', async (t) => {
  const pki = await createTunnelPki();
  const der = await issueCrl(pki.root, { revoked: [Buffer.of(1), Buffer.of(2)] });
  for (let length = 1; length < der.length; length += 1) {
    t.is(parsed(der.subarray(0, length)), null, `${length} bytes`);
  }
});
