import { execFile } from 'node:child_process';
import { X509Certificate, createPublicKey, generateKeyPairSync } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import type { ExecutionContext } from 'ava';
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
import { makeScratch } from '../../../support/leftovers.ts';

const run = promisify(execFile);
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

/** Makes another certificate of the authority with its name and key and another lifetime, as a renewal does. */
async function anotherOf(
  { key }: Issuer,
  name: string,
  by: Issuer,
  life: typeof validity,
): Promise<X509Certificate> {
  const pem = await issueIntermediate(by, createPublicKey(key), name, life);
  return new X509Certificate(pem);
}

async function scratch(t: ExecutionContext): Promise<string> {
  const dir = await makeScratch('verify');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

/** Issues an authority by the openssl program, valid from now on, with lines of its extension file. */
async function limited(
  t: ExecutionContext,
  by: Issuer | null,
  name: string,
  ...lines: string[]
): Promise<Issuer> {
  const dir = await scratch(t);
  const { privateKey: key } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const pem = (one: KeyObject) => one.export({ format: 'pem', type: 'pkcs8' });
  const file = async (as: string, content: string): Promise<string> => {
    await writeFile(join(dir, as), content);
    return join(dir, as);
  };
  const usage = 'keyUsage=critical,keyCertSign,cRLSign';
  const extensions = await file('extensions', [usage, ...lines].join('\n'));
  const own = await file('key.pem', pem(key));
  const args = ['x509', '-new', '-subj', `/O=${name}`, '-days', '2', '-extfile', extensions];
  if (by === null) args.push('-key', own);
  else {
    const publicPem = createPublicKey(key).export({ format: 'pem', type: 'spki' });
    args.push('-force_pubkey', await file('public.pem', publicPem));
    args.push('-CA', await file('ca.pem', by.certificate.toString()));
    args.push('-CAkey', await file('ca.key', pem(by.key)));
  }
  const { stdout } = await run('openssl', args);
  return { certificate: new X509Certificate(stdout), key };
}

/** Tells whether the openssl program verifies the leaf. */
async function opensslVerifies(
  t: ExecutionContext,
  leafCertificate: X509Certificate,
  presented: readonly X509Certificate[],
  roots: readonly X509Certificate[],
  atMs = NOW,
): Promise<boolean> {
  const dir = await scratch(t);
  const write = async (name: string, list: readonly X509Certificate[]): Promise<string> => {
    await writeFile(join(dir, name), list.map(String).join(''));
    return join(dir, name);
  };
  const untrusted =
    presented.length === 0 ? [] : ['-untrusted', await write('presented.pem', presented)];
  const args = ['-CAfile', await write('roots.pem', roots), ...untrusted];
  const file = await write('leaf.pem', [leafCertificate]);
  return run('openssl', ['verify', '-attime', String(Math.floor(atMs / 1000)), ...args, file]).then(
    () => true,
    () => false,
  );
}

const expired = { notBeforeMs: NOW - 2 * HOUR_MS, notAfterMs: NOW - HOUR_MS };

test('an authority renewed with its key is found in any order, as openssl finds it', async (t) => {
  const top = await root();
  const oldTop = await anotherOf(top, 'cluster.local', top, expired);
  const stranger = await root();
  const middle = await intermediate(top);
  const oldMiddle = await anotherOf(middle, 'middle', top, expired);
  const direct = await leaf(top, [uri(WEB)]);
  const below = await leaf(middle, [uri(WEB)]);
  const cases: [X509Certificate, X509Certificate[], X509Certificate[], boolean][] = [
    [direct, [], [oldTop, top.certificate], true],
    [direct, [], [stranger.certificate, oldTop, top.certificate], true],
    [direct, [], [oldTop, stranger.certificate], false],
    [below, [oldMiddle, middle.certificate], [oldTop, top.certificate], true],
    [below, [oldMiddle], [oldTop, top.certificate], false],
    [below, [oldMiddle, middle.certificate], [oldTop], false],
    [below, [oldMiddle, middle.certificate, top.certificate], [stranger.certificate], false],
  ];
  for (const [index, [certificate, presented, roots, expected]] of cases.entries()) {
    for (const [given, trusted] of [
      [presented, roots],
      [presented, roots.toReversed()],
      [presented.toReversed(), roots],
    ] as const) {
      let verified = true;
      try {
        verifyChain(certificate, given, trusted, NOW);
      } catch {
        verified = false;
      }
      t.is(verified, expected, `case ${index}`);
      t.is(await opensslVerifies(t, certificate, given, trusted), expected, `openssl, ${index}`);
    }
  }
});

test('a way that ends nowhere does not hide another', async (t) => {
  const [top, gone] = [await root('top'), await root('gone')];
  const middle = await intermediate(top);
  const byGone = await anotherOf(middle, 'middle', gone, validity);
  const certificate = await leaf(middle, [uri(WEB)]);
  for (const given of [
    [byGone, middle.certificate],
    [middle.certificate, byGone],
  ]) {
    const path = verifyChain(certificate, given, [top.certificate], NOW);
    t.deepEqual(path.map(String), [certificate, middle.certificate, top.certificate].map(String));
  }
});

test('authorities that have issued each other are no endless path', async (t) => {
  const [one, other] = [await root('one'), await root('other')];
  const certificate = await leaf(one, [uri(WEB)]);
  const given = [
    await anotherOf(one, 'one', other, validity),
    await anotherOf(other, 'other', one, validity),
    one.certificate,
  ];
  t.throws(() => verifyChain(certificate, given, [], NOW), {
    message: /does not lead to a trusted root/,
  });
});

test('the signatures checked for one path are bounded', async (t) => {
  const top = await root();
  const { key } = await root();
  // Names the authority as its issuer, but has another signer.
  const forged = await leaf({ certificate: top.certificate, key }, [uri(WEB)]);
  const many = await Promise.all(
    Array.from({ length: 65 }, () => anotherOf(top, 'cluster.local', top, validity)),
  );
  t.throws(() => verifyChain(forged, [], many, NOW), { message: /64 signatures checked/ });
  t.throws(() => verifyChain(forged, [], many.slice(1), NOW), {
    message: /does not lead to a trusted root/,
  });
});

test('authorities keep to the length that a higher one allows, as openssl counts it', async (t) => {
  const life = { notBeforeMs: Date.now() - HOUR_MS, notAfterMs: Date.now() + 24 * HOUR_MS };
  const atMs = Date.now() + HOUR_MS;
  const ca = (length?: number) =>
    `basicConstraints=critical,CA:TRUE${length === undefined ? '' : `,pathlen:${length}`}`;
  const chain = async (...lengths: (number | undefined)[]) => {
    const issuers: Issuer[] = [];
    for (const [index, length] of lengths.entries()) {
      issuers.push(await limited(t, issuers.at(-1) ?? null, `ca ${index}`, ca(length)));
    }
    return issuers;
  };
  const cases: [Issuer[], boolean][] = [
    [await chain(0), true],
    [await chain(0, undefined), false],
    [await chain(undefined, 0), true],
    [await chain(undefined, 0, undefined), false],
    [await chain(undefined, 1, undefined), true],
    [await chain(undefined, 1, undefined, undefined), false],
    [await chain(undefined, 3, 0, 5), false],
    [await chain(300, undefined), true],
    [await chain(undefined, 300, undefined), true],
  ];
  const [top, renewing] = await chain(undefined, 0);
  if (top === undefined || renewing === undefined) throw new Error('no authority');
  // An authority with a new key, whose old key vouches for it.
  cases.push([[top, renewing, await limited(t, renewing, 'ca 1', ca(0))], true]);
  for (const [index, [issuers, expected]] of cases.entries()) {
    const [trusted, ...between] = issuers.map(({ certificate }) => certificate);
    const [lowest] = issuers.slice(-1);
    if (trusted === undefined || lowest === undefined) throw new Error('no authority');
    const certificate = await leaf(lowest, [uri(WEB)], life);
    const verify = () => verifyChain(certificate, between, [trusted], atMs);
    if (expected) t.notThrows(verify, `case ${index}`);
    else t.throws(verify, { message: /allows \d authorities below it, and the path has \d/ });
    const byOpenssl = await opensslVerifies(t, certificate, between, [trusted], atMs);
    t.is(byOpenssl, expected, `openssl, ${index}`);
  }
});

test('an authority that limits names is refused, whatever the names', async (t) => {
  const life = { notBeforeMs: Date.now() - HOUR_MS, notAfterMs: Date.now() + 24 * HOUR_MS };
  const atMs = Date.now() + HOUR_MS;
  for (const [critical, domain, byOpenssl] of [
    ['critical,', 'cluster.local', true],
    ['critical,', 'other.test', false],
    ['', 'other.test', false],
  ] as const) {
    const names = `nameConstraints=${critical}permitted;URI:${domain}`;
    const top = await limited(t, null, 'top', 'basicConstraints=critical,CA:TRUE');
    const middle = await limited(t, top, 'middle', 'basicConstraints=critical,CA:TRUE', names);
    const limitedTop = await limited(t, null, 'top', 'basicConstraints=critical,CA:TRUE', names);
    for (const [issuer, between, trusted] of [
      [middle, [middle.certificate], top.certificate],
      [limitedTop, [], limitedTop.certificate],
    ] as const) {
      const certificate = await leaf(issuer, [uri(WEB)], life);
      t.throws(() => verifyChain(certificate, between, [trusted], atMs), {
        message: /^the authority O=(middle|top) has name constraints, which are not supported$/,
      });
      t.is(await opensslVerifies(t, certificate, between, [trusted], atMs), byOpenssl);
    }
  }
});
