/** Tests docs/decisions/changed-roots.md for connections without a tunnel. */
import test from 'ava';
import type { TunnelCredentials } from '../../../../lib/hbone/credentials.ts';
import { PeerTrust } from '../../../../lib/hbone/peer-trust.ts';
import { createLogger } from '../../../../lib/log/logger.ts';
import { Proofs } from '../../../../workers/listener/same-node/proof.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { CLIENT, createTunnelPki, credentials } from '../../../support/tunnel-pki.ts';

const GRACE_MS = 60_000;

async function rig() {
  const clock = new FakeClock();
  const log = createLogger({ actor: 'test', level: 'off' });
  const trust = new PeerTrust({ revocation: false, distrustGraceMs: GRACE_MS }, { clock, log });
  const source = await (await createTunnelPki()).issue(CLIENT);
  const fresh = await (await createTunnelPki('fresh')).issue(CLIENT);
  return {
    clock,
    trust,
    proofs: new Proofs(trust, { clock, distrustGraceMs: GRACE_MS }),
    before: credentials(source),
    /** The same certificate, then with the other roots, then with both. */
    moved: credentials({ ...fresh }),
    both: credentials({ ...source, rootsPem: source.rootsPem + fresh.rootsPem }),
    stranded: (): TunnelCredentials => credentials({ ...source, rootsPem: fresh.rootsPem }),
  };
}

test('a live connection whose certificate leads to no root any more ends after the grace', async (t) => {
  const { clock, proofs, before, moved, both } = await rig();
  const ended: string[] = [];
  proofs.stand(before, 'source', ({ code }) => ended.push(code));
  const leave = proofs.stand(before, 'destination', ({ code }) => ended.push(code));
  proofs.rootsChanged(both);
  await clock.advance(2 * GRACE_MS);
  t.deepEqual(ended, []);
  proofs.rootsChanged(moved);
  await clock.advance(GRACE_MS - 1);
  leave();
  t.deepEqual(ended, []);
  await clock.advance(1);
  t.deepEqual(ended, ['TLS_PEER_DISTRUSTED']);
});

test('a connection goes on when its roots are put right within the grace', async (t) => {
  const { clock, proofs, before, moved, both } = await rig();
  const ended: string[] = [];
  proofs.stand(before, 'source', ({ code }) => ended.push(code));
  proofs.rootsChanged(moved);
  await clock.advance(GRACE_MS - 1);
  proofs.rootsChanged(both);
  await clock.advance(GRACE_MS);
  t.deepEqual(ended, []);
  proofs.rootsChanged(moved);
  await clock.advance(GRACE_MS);
  t.deepEqual(ended, ['TLS_PEER_DISTRUSTED']);
});

test('roots that changed while a connection was made count for it too', async (t) => {
  const { clock, proofs, before, moved } = await rig();
  proofs.rootsChanged(moved);
  const ended: string[] = [];
  proofs.stand(before, 'source', ({ code }) => ended.push(code));
  proofs.stand(moved, 'source', ({ code }) => ended.push(code));
  await clock.advance(GRACE_MS);
  t.deepEqual(ended, ['TLS_PEER_DISTRUSTED']);
});

test('a certificate that leads to none of its own roots proves nothing', async (t) => {
  const { trust, before, stranded } = await rig();
  t.notThrows(() => trust.assertTrusted(before));
  t.throws(() => trust.assertTrusted(stranded()), { code: 'TLS_PEER_DISTRUSTED' });
});

test('roots of an identity that was dropped count no more', async (t) => {
  const { clock, proofs, before, moved } = await rig();
  proofs.rootsChanged(moved);
  proofs.drop(CLIENT);
  const ended: string[] = [];
  proofs.stand(before, 'source', ({ code }) => ended.push(code));
  await clock.advance(GRACE_MS);
  t.deepEqual(ended, []);
});
