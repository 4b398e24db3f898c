import { execFile } from 'node:child_process';
import { X509Certificate, createPrivateKey, generateKeyPairSync } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import { createRoot, issueIntermediate, issueLeaf } from '../../../../lib/identity/x509.ts';
import { makeScratch } from '../../../support/leftovers.ts';

const run = promisify(execFile);
const NOW = Date.UTC(2026, 10, 21, 12, 0, 0);
const DAY_MS = 86_400_000;
const NAMES = [{ kind: 'uri', value: 'spiffe://cluster.local/ns/demo/sa/web' }] as const;

async function authority(): Promise<{
  pem: string;
  issuer: {
    certificate: X509Certificate;
    key: KeyObject;
  };
}> {
  const root = await createRoot('cluster.local', NOW, NOW + 3650 * DAY_MS);
  return {
    pem: root.certificatePem,
    issuer: { certificate: new X509Certificate(root.certificatePem), key: root.key },
  };
}

test('openssl accepts a leaf below the root and sees every field upstream sets', async (t) => {
  const dir = await makeScratch('x509');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const { pem, issuer } = await authority();
  const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const leaf = await issueLeaf(issuer, {
    publicKey,
    names: NAMES,
    notBeforeMs: NOW - 120_000,
    notAfterMs: NOW + DAY_MS,
  });
  await writeFile(join(dir, 'root.pem'), pem);
  await writeFile(join(dir, 'leaf.pem'), leaf);
  const verified = await run('openssl', [
    'verify',
    '-x509_strict',
    '-attime',
    String(NOW / 1000),
    '-purpose',
    'sslclient',
    '-CAfile',
    join(dir, 'root.pem'),
    join(dir, 'leaf.pem'),
  ]);
  t.regex(verified.stdout, /leaf.pem: OK/);
  const { stdout } = await run('openssl', [
    'x509',
    '-in',
    join(dir, 'leaf.pem'),
    '-noout',
    '-text',
  ]);
  t.regex(stdout, /Version: 3/);
  t.regex(
    stdout,
    /Subject Alternative Name: critical\s+URI:spiffe:\/\/cluster.local\/ns\/demo\/sa\/web/,
  );
  t.regex(stdout, /Key Usage: critical\s+Digital Signature, Key Encipherment\n/);
  t.regex(stdout, /TLS Web Server Authentication, TLS Web Client Authentication/);
  t.regex(stdout, /Basic Constraints: critical\s+CA:FALSE/);
  t.regex(stdout, /Subject: *\n/);
  t.regex(stdout, /Issuer: O *= *cluster.local/);
  t.regex(stdout, /Not Before: Nov 21 11:58:00 2026 GMT/);
  t.regex(stdout, /Not After : Nov 22 12:00:00 2026 GMT/);
  const ids = [...stdout.matchAll(/((?:[0-9A-F]{2}:){19}[0-9A-F]{2})/g)].map((match) => match[1]);
  t.is(ids.length, 2);
});

test('the root is self-signed, an authority, and its key id is what leaves point to', async (t) => {
  const { issuer } = await authority();
  t.true(issuer.certificate.ca);
  t.true(issuer.certificate.verify(issuer.certificate.publicKey));
  t.is(issuer.certificate.subject, 'O=cluster.local');
  const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const leaf = new X509Certificate(
    await issueLeaf(issuer, {
      publicKey,
      names: NAMES,
      notBeforeMs: NOW,
      notAfterMs: NOW + DAY_MS,
    }),
  );
  t.true(leaf.checkIssued(issuer.certificate));
  t.true(leaf.verify(issuer.certificate.publicKey));
  t.false(leaf.ca);
});

test('a leaf below an intermediate of a plugged-in RSA root verifies as a chain', async (t) => {
  const dir = await makeScratch('x509');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const rootPath = join(dir, 'root.pem');
  await run('openssl', [
    'req',
    '-x509',
    '-newkey',
    'rsa:2048',
    '-nodes',
    '-days',
    '30',
    '-subj',
    '/O=Acme/CN=Röot',
    '-utf8',
    '-keyout',
    join(dir, 'root-key.pem'),
    '-out',
    rootPath,
  ]);
  const rootPem = (await run('cat', [rootPath])).stdout;
  const rootKey = (await run('cat', [join(dir, 'root-key.pem')])).stdout;
  const root = { certificate: new X509Certificate(rootPem), key: createPrivateKey(rootKey) };
  const pair = generateKeyPairSync('ec', { namedCurve: 'P-384' });
  const validity = { notBeforeMs: Date.now() - 1000, notAfterMs: Date.now() + DAY_MS };
  const middlePem = await issueIntermediate(root, pair.publicKey, 'cluster.local', validity);
  const middle = { certificate: new X509Certificate(middlePem), key: pair.privateKey };
  const leafKeys = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const leaf = await issueLeaf(middle, {
    publicKey: leafKeys.publicKey,
    names: NAMES,
    ...validity,
  });
  await writeFile(join(dir, 'middle.pem'), middlePem);
  await writeFile(join(dir, 'leaf.pem'), leaf);
  const { stdout } = await run('openssl', [
    'verify',
    '-CAfile',
    rootPath,
    '-untrusted',
    join(dir, 'middle.pem'),
    join(dir, 'leaf.pem'),
  ]);
  t.regex(stdout, /leaf.pem: OK/);
});

test('serial numbers are positive, of up to 128 bits, and differ', async (t) => {
  const { issuer } = await authority();
  const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const serials = new Set<string>();
  for (let count = 0; count < 64; count += 1) {
    const pem = await issueLeaf(issuer, {
      publicKey,
      names: NAMES,
      notBeforeMs: NOW,
      notAfterMs: NOW + DAY_MS,
    });
    const { serialNumber } = new X509Certificate(pem);
    t.regex(serialNumber, /^[0-9A-F]{1,32}$/);
    serials.add(serialNumber);
  }
  t.is(serials.size, 64);
});

test('server names and addresses are written, and times beyond 2049', async (t) => {
  const { issuer } = await authority();
  const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const leaf = new X509Certificate(
    await issueLeaf(issuer, {
      publicKey,
      names: [
        { kind: 'dns', value: 'istiod.istio-system.svc' },
        { kind: 'ip', value: '10.200.0.2' },
        { kind: 'ip', value: 'fd00:200::2' },
        { kind: 'ip', value: '::ffff:10.0.0.1' },
      ],
      notBeforeMs: NOW,
      notAfterMs: Date.UTC(2051, 5, 1),
    }),
  );
  t.is(leaf.checkHost('istiod.istio-system.svc'), 'istiod.istio-system.svc');
  t.is(leaf.checkIP('10.200.0.2'), '10.200.0.2');
  t.is(leaf.checkIP('fd00:200::2'), 'fd00:200::2');
  t.regex(leaf.subjectAltName ?? '', /0:0:0:0:0:FFFF:A00:1/i);
  t.is(leaf.validToDate.getTime(), Date.UTC(2051, 5, 1));
});

test('a name that cannot stand in a certificate is refused', async (t) => {
  const { issuer } = await authority();
  const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  for (const name of [
    { kind: 'dns', value: 'ex ample' },
    { kind: 'ip', value: '10.0.0' },
    { kind: 'uri', value: '' },
  ] as const) {
    await t.throwsAsync(
      () => issueLeaf(issuer, { publicKey, names: [name], notBeforeMs: NOW, notAfterMs: NOW + 1 }),
      { message: /not (a usable certificate name|an IP address)/ },
    );
  }
});
