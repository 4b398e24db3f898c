import { execFile } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import * as fc from 'fast-check';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { createRequest, parseRequest, requestFor } from '../../../../lib/identity/csr.ts';
import { rootName } from '../../../../lib/identity/root-report.ts';
import { createRoot } from '../../../../lib/identity/x509.ts';
import { makeScratch } from '../../../support/leftovers.ts';

const run = promisify(execFile);
const IDENTITY = 'spiffe://cluster.local/ns/demo/sa/web';

async function folder(t: { teardown(action: () => Promise<void>): void }): Promise<string> {
  const path = await makeScratch('csr');
  t.teardown(() => rm(path, { recursive: true, force: true }));
  return path;
}

/** Makes a request with another program: PEM of a new key with the subject. */
async function requestOfOpenssl(
  t: Parameters<typeof folder>[0],
  subject: string,
  args: readonly string[],
): Promise<string> {
  const dir = await folder(t);
  const out = join(dir, 'request.pem');
  const files = ['-keyout', join(dir, 'key.pem'), '-out', out];
  await run('openssl', ['req', '-new', '-nodes', '-subj', subject, ...files, ...args]);
  return readFile(out, 'utf8');
}

test('openssl verifies a request and reads its critical name', async (t) => {
  const path = join(await folder(t), 'request.pem');
  const { csrPem, key } = await requestFor(IDENTITY);
  await writeFile(path, csrPem);
  const { stdout, stderr } = await run('openssl', [
    'req',
    '-in',
    path,
    '-noout',
    '-text',
    '-verify',
  ]);
  t.regex(stdout + stderr, /verify OK/);
  t.regex(
    stdout,
    /X509v3 Subject Alternative Name: critical\s+URI:spiffe:\/\/cluster.local\/ns\/demo\/sa\/web/,
  );
  t.regex(stdout, /Subject: *\n/);
  t.regex(stdout, /Signature Algorithm: ecdsa-with-SHA256/);
  t.regex(stdout, /ASN1 OID: prime256v1/);
  t.is(key.type, 'private');
});

test('a request carries the roots that its maker trusts; other programs read it, and its signature covers them', async (t) => {
  const now = Date.now();
  const made = await Promise.all(['a', 'b'].map((name) => createRoot(name, now, now + 60_000)));
  const roots = made.map(({ certificatePem }) => new X509Certificate(certificatePem));
  const { csrPem } = await requestFor(IDENTITY, roots);
  const parsed = await parseRequest(csrPem);
  t.deepEqual(parsed.uris, [IDENTITY]);
  t.deepEqual(parsed.trustedRoots, roots.map(rootName));
  t.is((await parseRequest((await requestFor(IDENTITY)).csrPem)).trustedRoots, null);
  const path = join(await folder(t), 'request.pem');
  await writeFile(path, csrPem);
  const read = await run('openssl', ['req', '-in', path, '-noout', '-text', '-verify']);
  t.regex(read.stdout + read.stderr, /verify OK/);
  t.regex(read.stdout, /unstructuredName *: *weft-roots:[0-9a-f]{16},[0-9a-f]{16}/);
});

test('a request for the certificate of an authority is refused', async (t) => {
  const asking = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-addext'];
  const authority = await requestOfOpenssl(t, '/', [
    ...asking,
    'basicConstraints=critical,CA:TRUE',
  ]);
  await t.throwsAsync(() => parseRequest(authority), { message: /certificate of an authority/ });
  const leaf = await requestOfOpenssl(t, '/', [...asking, 'basicConstraints=CA:FALSE']);
  t.deepEqual((await parseRequest(leaf)).uris, []);
});

test('each request has a key of its own', async (t) => {
  const [first, second] = await Promise.all([requestFor(IDENTITY), requestFor(IDENTITY)]);
  t.not(first.csrPem, second.csrPem);
});

test('a request is read back with its names', async (t) => {
  const { csrPem, key } = await createRequest([
    { kind: 'dns', value: 'istiod.istio-system.svc' },
    { kind: 'uri', value: IDENTITY },
  ]);
  const parsed = await parseRequest(csrPem);
  t.deepEqual(parsed.uris, [IDENTITY]);
  t.is(parsed.publicKey.asymmetricKeyDetails?.namedCurve, 'prime256v1');
  t.is(key.asymmetricKeyType, 'ec');
});

for (const [kind, args] of [
  ['RSA 2048', ['rsa:2048']],
  ['P-384', ['ec', '-pkeyopt', 'ec_paramgen_curve:secp384r1', '-sha384']],
  ['Ed25519', ['ed25519']],
] as const) {
  test(`a request made by openssl with ${kind} is accepted`, async (t) => {
    const text = await requestOfOpenssl(t, '/O=other', [
      '-addext',
      `subjectAltName=URI:${IDENTITY}`,
      '-newkey',
      ...args,
    ]);
    t.deepEqual((await parseRequest(text)).uris, [IDENTITY]);
  });
}

for (const [kind, args, reason] of [
  ['a short RSA key', ['rsa:1024'], /RSA with 1024 bits/],
  ['a foreign curve', ['ec', '-pkeyopt', 'ec_paramgen_curve:secp256k1'], /curve secp256k1/],
  ['a SHA-1 signature', ['rsa:2048', '-sha1'], /1\.2\.840\.113549\.1\.1\.5 is not accepted/],
] as const) {
  test(`${kind} is refused with the reason`, async (t) => {
    const text = await requestOfOpenssl(t, '/', ['-newkey', ...args]);
    const error = await t.throwsAsync(() => parseRequest(text), { instanceOf: MeshError });
    t.is(error?.code, 'IDENTITY_INVALID');
    t.regex(error?.message ?? '', reason);
  });
}

test('a signature by another key is refused', async (t) => {
  const { csrPem } = await requestFor(IDENTITY);
  const der = Buffer.from(csrPem.replaceAll(/-----[^-]+-----|\s/g, ''), 'base64');
  const at = der.indexOf('demo');
  der.write('evil', at);
  const forged = `-----BEGIN CERTIFICATE REQUEST-----\n${der.toString('base64')}\n-----END CERTIFICATE REQUEST-----\n`;
  await t.throwsAsync(() => parseRequest(forged), { message: /not signed by the key it names/ });
});

for (const [what, text, reason] of [
  ['nothing', '', /not a PEM/],
  [
    'a certificate label',
    '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----',
    /not a PEM/,
  ],
  ['no DER', '-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----', /./],
  ['too much', 'x'.repeat(100_000), /larger than/],
] as const) {
  test(`${what} is refused as a request`, async (t) => {
    const error = await t.throwsAsync(() => parseRequest(text), { instanceOf: MeshError });
    t.is(error?.code, 'IDENTITY_INVALID');
    t.regex(error?.message ?? '', reason);
  });
}

test('any damage to a request is refused, never thrown as a defect', async (t) => {
  const { csrPem } = await requestFor(IDENTITY);
  const der = Buffer.from(csrPem.replaceAll(/-----[^-]+-----|\s/g, ''), 'base64');
  await fc.assert(
    fc.asyncProperty(
      fc.nat(der.length - 1),
      fc.integer({ min: 1, max: 255 }),
      fc.boolean(),
      async (at, flip, cut) => {
        const broken = Buffer.from(cut ? der.subarray(0, at) : der);
        if (!cut) broken[at] = (broken[at] ?? 0) ^ flip;
        const pem = `-----BEGIN CERTIFICATE REQUEST-----\n${broken.toString('base64')}\n-----END CERTIFICATE REQUEST-----\n`;
        const error = await t.throwsAsync(() => parseRequest(pem));
        t.true(error instanceof MeshError, `byte ${at}: ${error?.message}`);
      },
    ),
    { numRuns: 300 },
  );
});
