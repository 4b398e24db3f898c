import test from 'ava';
import { systemClock } from '../../../../lib/clock/clock.ts';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { CertificateStore } from '../../../../workers/listener/certificates.ts';
import type { CertificateBundle } from '../../../../workers/listener/protocol.ts';
import { createTunnelPki } from '../../../support/tunnel-pki.ts';

const IDENTITY = 'spiffe://cluster.local/ns/demo/sa/web';

async function bundle(lifeMs = 3_600_000): Promise<CertificateBundle> {
  const source = await (await createTunnelPki()).issue(IDENTITY, { lifeMs });
  if (typeof source.key === 'string') throw new Error('a KeyObject is expected');
  return { ...source, key: source.key, serialNumber: '01' };
}

function store(): { certificates: CertificateStore; requests: string[] } {
  const requests: string[] = [];
  const certificates = new CertificateStore(
    {
      tls12: false,
      compliance: null,
      handshakeTimeoutMs: 1_000,
      request: (identity) => requests.push(identity),
    },
    systemClock,
  );
  return { certificates, requests };
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
  const { certificates } = store();
  const good = await bundle();
  certificates.put(good);
  const foreignKey = await bundle();
  t.throws(() => certificates.put({ ...good, key: foreignKey.key }), { code: 'IDENTITY_INVALID' });
  t.throws(() => certificates.put({ ...good, chainPem: 'nothing' }), { code: 'IDENTITY_INVALID' });
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
