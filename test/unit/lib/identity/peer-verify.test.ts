import { X509Certificate, generateKeyPairSync } from 'node:crypto';
import test from 'ava';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import {
  peerIdentities,
  uriAltNames,
  verifyChain,
  verifyClientIdentity,
  verifyServerIdentity,
} from '../../../../lib/identity/peer-verify.ts';
import type { AltName } from '../../../../lib/identity/subject-alt-name.ts';
import { createRoot, issueIntermediate, issueLeaf } from '../../../../lib/identity/x509.ts';
import type { Issuer } from '../../../../lib/identity/x509.ts';

const NOW = Date.UTC(2026, 10, 21, 12);
const HOUR_MS = 3_600_000;
const WEB = 'spiffe://cluster.local/ns/demo/sa/web';
const API = 'spiffe://cluster.local/ns/demo/sa/api';
const FOREIGN = 'spiffe://other.test/ns/demo/sa/web';
const validity = { notBeforeMs: NOW - HOUR_MS, notAfterMs: NOW + HOUR_MS };

async function root(name = 'cluster.local'): Promise<Issuer> {
  const made = await createRoot(name, validity.notBeforeMs, validity.notAfterMs);
  return { certificate: new X509Certificate(made.certificatePem), key: made.key };
}

async function leaf(
  issuer: Issuer,
  names: readonly AltName[],
  life = validity,
): Promise<X509Certificate> {
  const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return new X509Certificate(await issueLeaf(issuer, { publicKey, names, ...life }));
}

async function intermediate(issuer: Issuer, life = validity): Promise<Issuer> {
  const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const pem = await issueIntermediate(issuer, keys.publicKey, 'middle', life);
  return { certificate: new X509Certificate(pem), key: keys.privateKey };
}

const uri = (value: string): AltName => ({ kind: 'uri', value });

// spec: hbone.md §3
test('identities are the SPIFFE URIs, in order; other names are left out', async (t) => {
  const certificate = await leaf(await root(), [
    { kind: 'dns', value: 'web.demo' },
    uri('https://example.test/x'),
    uri(API),
    { kind: 'ip', value: '10.0.0.1' },
    uri(WEB),
  ]);
  t.deepEqual(peerIdentities(certificate), [API, WEB]);
});

// spec: hbone.md §3
test('a name that only looks like a URI inside another is none', async (t) => {
  const certificate = await leaf(await root(), [
    { kind: 'dns', value: `a,URI:${WEB},DNS:b` },
    { kind: 'dns', value: `a", URI:${WEB}`.replaceAll(' ', '') },
    uri(API),
  ]);
  t.deepEqual(peerIdentities(certificate), [API]);
});

// spec: hbone.md §3
test('names that cannot be told apart are no names', (t) => {
  t.deepEqual(uriAltNames(undefined), []);
  t.deepEqual(uriAltNames(`URI:${WEB}`), [WEB]);
  t.deepEqual(uriAltNames(`URI:${WEB}, DNS:"x\\", y", URI:${API}`), [WEB, API]);
  t.deepEqual(uriAltNames(`URI:"${WEB}"`), []);
  t.deepEqual(uriAltNames(`URI:${WEB}, "broken`), []);
  t.deepEqual(uriAltNames(Array.from({ length: 400 }, () => `URI:${WEB}`).join(', ')), []);
});

// spec: hbone.md §3
test('a server takes a client of its own trust domain only', async (t) => {
  const issuer = await root();
  t.is(verifyClientIdentity(await leaf(issuer, [uri(API)]), WEB), API);
  t.is(verifyClientIdentity(await leaf(issuer, [uri(FOREIGN), uri(API)]), WEB), FOREIGN);
  for (const names of [[uri(FOREIGN)], [{ kind: 'dns', value: 'web' } as const]]) {
    const certificate = await leaf(issuer, names);
    const error = t.throws(() => verifyClientIdentity(certificate, WEB), { instanceOf: MeshError });
    t.is(error?.code, 'TLS_PEER_IDENTITY');
  }
});

// spec: hbone.md §3
test('a client takes a server that has one of the expected identities only', async (t) => {
  const certificate = await leaf(await root(), [uri(API), uri(WEB)]);
  t.is(verifyServerIdentity(certificate, [WEB]), WEB);
  t.is(verifyServerIdentity(certificate, [FOREIGN, API]), API);
  for (const expected of [[], [FOREIGN]]) {
    const error = t.throws(() => verifyServerIdentity(certificate, expected), {
      instanceOf: MeshError,
    });
    t.is(error?.code, 'TLS_PEER_IDENTITY');
    t.regex(error?.message ?? '', /names .*api, .*web, expected/);
  }
});

test('a chain leads over intermediates to a trusted root', async (t) => {
  const top = await root();
  const middle = await intermediate(top);
  const low = await intermediate(middle);
  const certificate = await leaf(low, [uri(WEB)]);
  const between = [middle.certificate, low.certificate];
  t.notThrows(() => verifyChain(certificate, between, [top.certificate], NOW));
  t.notThrows(() => verifyChain(certificate, between.toReversed(), [top.certificate], NOW));
  const other = await root();
  for (const [roots, given] of [
    [[other.certificate], between],
    [[top.certificate], []],
    [[top.certificate], [middle.certificate]],
    [[], between],
  ] as const) {
    t.throws(() => verifyChain(certificate, given, roots, NOW), {
      message: /does not lead to a trusted root/,
    });
  }
});

test('a root of the same name and another key does not help', async (t) => {
  const certificate = await leaf(await root('same'), [uri(WEB)]);
  const impostor = await root('same');
  t.throws(() => verifyChain(certificate, [], [impostor.certificate], NOW), {
    message: /does not lead to a trusted root/,
  });
});

test('a leaf cannot issue another', async (t) => {
  const top = await root();
  const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const pem = await issueLeaf(top, { publicKey: keys.publicKey, names: [uri(WEB)], ...validity });
  const asIssuer = { certificate: new X509Certificate(pem), key: keys.privateKey };
  const forged = await leaf(asIssuer, [uri(API)]);
  t.throws(() => verifyChain(forged, [asIssuer.certificate], [top.certificate], NOW), {
    message: /does not lead to a trusted root/,
  });
});

test('every certificate of the path must be valid at the time', async (t) => {
  const top = await root();
  const short = { notBeforeMs: NOW - HOUR_MS, notAfterMs: NOW - 60_000 };
  const old = await leaf(top, [uri(WEB)], short);
  t.throws(() => verifyChain(old, [], [top.certificate], NOW), { message: /expired at/ });
  const early = await leaf(top, [uri(WEB)], {
    notBeforeMs: NOW + 1_000,
    notAfterMs: NOW + HOUR_MS,
  });
  t.throws(() => verifyChain(early, [], [top.certificate], NOW), { message: /not valid before/ });
  const middle = await intermediate(top, short);
  const below = await leaf(middle, [uri(WEB)]);
  t.throws(() => verifyChain(below, [middle.certificate], [top.certificate], NOW), {
    message: /the authority O=middle expired/,
  });
  const fine = await leaf(top, [uri(WEB)], { notBeforeMs: NOW - 1, notAfterMs: NOW + 9 * HOUR_MS });
  t.throws(() => verifyChain(fine, [], [top.certificate], NOW + 2 * HOUR_MS), {
    message: /the authority O=cluster.local expired/,
  });
});
