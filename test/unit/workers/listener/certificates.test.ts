import { setImmediate as turn } from 'node:timers/promises';
import test from 'ava';
import { systemClock } from '../../../../lib/clock/clock.ts';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { CertificateStore } from '../../../../workers/listener/tunnel/certificates.ts';
import { CERTIFICATES_PER_TURN } from '../../../../workers/listener/limits.ts';
import type { WorkloadCertificate } from '../../../../lib/identity/workload-certificate.ts';
import { createTunnelPki } from '../../../support/tunnel-pki.ts';

const IDENTITY = 'spiffe://cluster.local/ns/demo/sa/web';

async function bundle(lifeMs = 3_600_000, identity = IDENTITY): Promise<WorkloadCertificate> {
  const source = await (await createTunnelPki()).issue(identity, { lifeMs });
  if (typeof source.key === 'string') throw new Error('a KeyObject is expected');
  return { ...source, key: source.key, serialNumber: '01' };
}

function store(): {
  certificates: CertificateStore;
  requests: string[];
  unusable: MeshError[];
  changed: string[];
} {
  const requests: string[] = [];
  const unusable: MeshError[] = [];
  const changed: string[] = [];
  const certificates = new CertificateStore(
    {
      tls12: false,
      compliance: null,
      handshakeTimeoutMs: 1_000,
      request: (identity) => requests.push(identity),
      unusable: (_identity, error) => unusable.push(error),
      rootsChanged: ({ identity }) => changed.push(identity),
    },
    systemClock,
  );
  return { certificates, requests, unusable, changed };
}

test('those who wait for one identity ask once and share its contexts', async (t) => {
  const { certificates, requests } = store();
  const [first, second] = [certificates.get(IDENTITY), certificates.get(IDENTITY)];
  certificates.put(await bundle());
  const one = await first;
  const two = await second;
  t.is(one, two);
  t.deepEqual(requests, [IDENTITY]);
  t.is(await certificates.get(IDENTITY), one);
});

test('an expired certificate is not used but asked for anew', async (t) => {
  const { certificates, requests } = store();
  certificates.put(await bundle(-1_000));
  const waiting = certificates.get(IDENTITY);
  t.is(requests.length, 1);
  certificates.put(await bundle());
  t.true((await waiting).notAfterMs > Date.now());
});

test('a refusal reaches who waits and leaves a valid certificate in place', async (t) => {
  const { certificates } = store();
  const waiting = certificates.get(IDENTITY);
  certificates.unavailable(IDENTITY, new MeshError('IDENTITY_REFUSED', 'no'));
  await t.throwsAsync(() => Promise.resolve(waiting), { code: 'IDENTITY_REFUSED' });
  certificates.put(await bundle());
  certificates.unavailable(IDENTITY, new MeshError('IDENTITY_REFUSED', 'no'));
  t.truthy(await certificates.get(IDENTITY));
});

test('a bundle that makes no context is refused and the old one stays', async (t) => {
  const { certificates, unusable } = store();
  const good = await bundle();
  const foreignKey = await bundle();
  const waiting = certificates.get(IDENTITY);
  certificates.put({ ...good, key: foreignKey.key });
  await t.throwsAsync(() => Promise.resolve(waiting), { code: 'IDENTITY_INVALID' });
  certificates.put(good);
  certificates.put({ ...good, chainPem: 'nothing' });
  t.deepEqual(
    unusable.map(({ code }) => code),
    ['IDENTITY_INVALID', 'IDENTITY_INVALID'],
  );
  t.truthy(await certificates.get(IDENTITY));
});

test('a dropped certificate is gone, those who wait for one go on waiting', async (t) => {
  const { certificates, requests } = store();
  certificates.put(await bundle());
  certificates.drop(IDENTITY);
  certificates.drop('spiffe://cluster.local/ns/demo/sa/never-there');
  const waiting = certificates.get(IDENTITY);
  t.deepEqual(requests, [IDENTITY]);
  certificates.drop(IDENTITY);
  certificates.put(await bundle());
  t.is((await waiting).identity, IDENTITY);
});

test('changed roots of a hundred identities are taken a few in a turn', async (t) => {
  const { certificates, changed } = store();
  const [one, other] = [await createTunnelPki('one'), await createTunnelPki('other')];
  const rootsPem = one.rootPem + other.rootPem;
  const bundles: WorkloadCertificate[] = [];
  for (let index = 0; index < 100; index += 1) {
    const { key, ...rest } = await one.issue(`spiffe://cluster.local/ns/demo/sa/a${index}`);
    if (typeof key === 'string') throw new Error('a KeyObject is expected');
    bundles.push({ ...rest, key, serialNumber: '01' });
  }
  for (const given of bundles) certificates.put(given);
  for (const { identity } of bundles) await certificates.get(identity);
  for (const given of bundles) certificates.put({ ...given, rootsPem });
  t.true(changed.length <= CERTIFICATES_PER_TURN, `at once: ${changed.length}`);
  for (let before = changed.length; changed.length < 100; before = changed.length) {
    await turn();
    t.true(changed.length > before);
    t.true(changed.length <= before + CERTIFICATES_PER_TURN, `${changed.length} after ${before}`);
  }
  t.deepEqual(
    changed,
    bundles.map(({ identity }) => identity),
  );
});

test('what comes while a certificate waits for its turn counts in its order', async (t) => {
  const { certificates, requests } = store();
  const names = ['a', 'b', 'c', 'd', 'e', 'f'].map((name) => `${IDENTITY}-${name}`);
  const bundles = await Promise.all(names.map((name) => bundle(3_600_000, name)));
  const [gone = '', told = ''] = names.slice(CERTIFICATES_PER_TURN);
  for (const given of bundles) certificates.put(given);
  const waiting = certificates.get(told);
  certificates.unavailable(told, new MeshError('IDENTITY_REFUSED', 'no'));
  t.is((await waiting).identity, told);
  certificates.drop(gone);
  await turn();
  await turn();
  void Promise.resolve(certificates.get(gone));
  t.deepEqual(requests, [told, gone]);
});
