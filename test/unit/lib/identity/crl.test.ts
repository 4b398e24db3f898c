import { X509Certificate } from 'node:crypto';
import test from 'ava';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import {
  booleanTrue,
  contextBytes,
  integer,
  oid,
  sequence,
} from '../../../../lib/identity/asn1.ts';
import {
  MAX_CRL_BYTES,
  MAX_CRL_LISTS,
  parseRevocationLists,
} from '../../../../lib/identity/crl.ts';
import { verifyChain } from '../../../../lib/identity/peer-verify.ts';
import { parseCertificates } from '../../../../lib/tls/pem.ts';
import { RevocationBook } from '../../../../lib/identity/revocation-book.ts';
import { extension } from '../../../../lib/identity/subject-alt-name.ts';
import { issueCrl, issueCrlPem } from '../../../support/crl-kit.ts';
import { createTunnelPki } from '../../../support/tunnel-pki.ts';

const WEB = 'spiffe://cluster.local/ns/demo/sa/web';

/** Returns the position of a revoked certificate in the chain, counted from the leaf; null for none. */
function revokedAt(book: RevocationBook, chainPem: string, rootsPem: string): number | null {
  const [leaf, ...others] = parseCertificates(chainPem, 'the chain');
  if (leaf === undefined) throw new Error('no leaf');
  const path = verifyChain(leaf, others, parseCertificates(rootsPem, 'roots'), Date.now());
  const steps = book.steps(path);
  const step = book.revoked(steps);
  return step === null ? null : steps.indexOf(step);
}

function bookOf(content: Buffer | string): RevocationBook {
  const book = new RevocationBook();
  // A clone, as the threads get it.
  book.replace(structuredClone(parseRevocationLists(Buffer.from(content))));
  return book;
}

// spec: hbone.md §4
test('PEM with several lists among other blocks, and a single DER list, are read', async (t) => {
  const pki = await createTunnelPki();
  const web = await pki.issue(WEB, { intermediate: true });
  const fine = await pki.issue(WEB, { intermediate: true });
  const root = await issueCrlPem(pki.root, { revoked: [Buffer.of(1, 2, 3)] });
  const middle = await issueCrlPem(pki.middle, { revoked: [Buffer.of(9), web.chainPem] });
  const pem = `# notes\n${pki.rootPem}${root}\r\n${middle}`;
  const lists = parseRevocationLists(Buffer.from(pem));
  t.deepEqual(
    lists.lists.map(({ serials }) => serials.length),
    [1, 2],
  );
  for (const content of [
    Buffer.from(pem),
    await issueCrl(pki.middle, { revoked: [web.chainPem] }),
  ]) {
    const book = bookOf(content);
    t.is(revokedAt(book, web.chainPem, pki.rootPem), 0);
    t.is(revokedAt(book, fine.chainPem, pki.rootPem), null);
  }
});

// spec: hbone.md §4
test('an empty file and one without lists revoke nothing', async (t) => {
  const pki = await createTunnelPki();
  for (const content of ['', ' \n', pki.rootPem]) {
    t.deepEqual(parseRevocationLists(Buffer.from(content)).lists, []);
    t.true(bookOf(content).empty);
  }
});

// spec: hbone.md §4
test('the whole chain is checked: a revoked intermediate revokes what it issued', async (t) => {
  const pki = await createTunnelPki();
  const web = await pki.issue(WEB, { intermediate: true });
  const direct = await pki.issue(WEB);
  const middlePem = pki.middle.certificate.toString();
  const book = bookOf(await issueCrl(pki.root, { revoked: [middlePem] }));
  t.is(revokedAt(book, web.chainPem, pki.rootPem), 1);
  t.is(revokedAt(book, direct.chainPem, pki.rootPem), null);
});

// spec: hbone.md §4
test('an expired list counts, and one that names no end', async (t) => {
  const pki = await createTunnelPki();
  const web = await pki.issue(WEB);
  for (const nextUpdateMs of [Date.now() - 86_400_000, null]) {
    const book = bookOf(await issueCrl(pki.root, { revoked: [web.chainPem], nextUpdateMs }));
    t.is(revokedAt(book, web.chainPem, pki.rootPem), 0);
  }
});

test('a list that the authority did not sign revokes nothing, whatever its name', async (t) => {
  const pki = await createTunnelPki();
  const stranger = await createTunnelPki();
  const web = await pki.issue(WEB);
  const forged = await issueCrl(pki.root, { revoked: [web.chainPem], signWith: stranger.root });
  t.is(revokedAt(bookOf(forged), web.chainPem, pki.rootPem), null);
  // The other authority has the same name.
  const other = await issueCrl(stranger.root, { revoked: [web.chainPem] });
  t.is(revokedAt(bookOf(other), web.chainPem, pki.rootPem), null);
  const genuine = await issueCrlPem(pki.root, { revoked: [web.chainPem] });
  const both = `-----BEGIN X509 CRL-----\n${other.toString('base64')}\n-----END X509 CRL-----\n${genuine}`;
  t.is(revokedAt(bookOf(both), web.chainPem, pki.rootPem), 0);
});

test('lists that mean something else than they seem to are refused by name', async (t) => {
  const pki = await createTunnelPki();
  const revoked = [Buffer.of(7)];
  const flag = sequence(contextBytes(4, Buffer.of(0xff)));
  const cases = [
    [{ extensions: [extension('2.5.29.27', true, integer(Buffer.of(1)))] }, /is a delta list/],
    [{ extensions: [extension('2.5.29.28', true, flag)] }, /is an indirect list/],
    [{ entryExtensions: [extension('2.5.29.29', true, sequence())] }, /is an indirect list/],
    [{ extensions: [extension('1.2.3.4', true, booleanTrue())] }, /critical extension/],
    [{ entryExtensions: [extension('1.2.3.4', true, booleanTrue())] }, /critical extension/],
    [{ extensions: [sequence(oid('1.2.3'))] }, /an extension is malformed/],
  ] as const;
  for (const [request, message] of cases) {
    const der = await issueCrl(pki.root, { revoked, ...request });
    const error = t.throws(() => parseRevocationLists(der), { instanceOf: MeshError, message });
    t.is(error.code, 'IDENTITY_INVALID');
    t.regex(error.message, /revocation list 1/);
  }
  const scoped = sequence(contextBytes(1, Buffer.of(0xff)));
  const part = await issueCrl(pki.root, {
    revoked,
    extensions: [extension('2.5.29.28', true, scoped)],
  });
  t.is(parseRevocationLists(part).lists[0]?.serials.length, 1);
});

test('one bad list refuses the file and says which; a block cut short too', async (t) => {
  const pki = await createTunnelPki();
  const good = await issueCrlPem(pki.root, { revoked: [] });
  const bad = '-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n';
  t.throws(() => parseRevocationLists(Buffer.from(good + bad)), {
    instanceOf: MeshError,
    message: /revocation list 2/,
  });
  t.throws(() => parseRevocationLists(Buffer.from(good + good.slice(0, -30))), {
    message: /cut short/,
  });
  const der = await issueCrl(pki.root, { revoked: [] });
  t.throws(() => parseRevocationLists(Buffer.concat([der, Buffer.of(0x05, 0)])), {
    message: /bytes follow it/,
  });
  t.throws(() => parseRevocationLists(Buffer.from('no list at all')), { instanceOf: MeshError });
});

test('more bytes or lists than allowed are refused, as many as allowed are not', async (t) => {
  const pki = await createTunnelPki();
  t.throws(() => parseRevocationLists(Buffer.alloc(MAX_CRL_BYTES + 1)), { message: /longer than/ });
  const pem = await issueCrlPem(pki.root, { revoked: [] });
  const full = parseRevocationLists(Buffer.from(pem.repeat(MAX_CRL_LISTS)));
  t.is(full.lists.length, MAX_CRL_LISTS);
  t.throws(() => parseRevocationLists(Buffer.from(pem.repeat(MAX_CRL_LISTS + 1))), {
    message: /holds 257 revocation lists/,
  });
});

test('serial numbers of every length are found and no others, among thousands', async (t) => {
  const pki = await createTunnelPki();
  const serials = Array.from({ length: 3_000 }, (_, n) => {
    const bytes = Buffer.alloc(1 + (n % 20), n % 251);
    bytes.writeUInt8(1 + (n % 255), 0);
    return bytes;
  });
  const listed = serials.filter((_, n) => n % 2 === 0);
  const book = bookOf(await issueCrl(pki.root, { revoked: listed }));
  const certificate = new X509Certificate(pki.rootPem);
  const [step] = book.steps([certificate, certificate]);
  const issuer = step?.issuer;
  if (issuer === undefined) throw new Error('no issuer');
  const keys = new Set(listed.map((serial) => serial.toString('hex')));
  for (const serial of serials) {
    t.is(book.isListed(serial, issuer), keys.has(serial.toString('hex')));
  }
});
