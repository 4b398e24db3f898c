/** Tests docs/decisions/connect-retry.md. */
import test from 'ava';
import { Backoff } from '../../../../lib/clock/backoff.ts';
import type { ErrorCode } from '../../../../lib/errors/codes.ts';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { connectWithRetry } from '../../../../lib/hbone/retry.ts';
import type { ConnectAttempt } from '../../../../lib/hbone/retry.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

/** Counts the attempts of a connect that always fails with the code, before or after the peer was asked. */
async function attempts(
  code: ErrorCode,
  { status, ...facts }: Partial<ConnectAttempt> & { readonly status?: number },
): Promise<number> {
  const clock = new FakeClock();
  let made = 0;
  const detail = status === undefined ? {} : { status };
  const connecting = connectWithRetry(
    (attempt) => {
      made += 1;
      Object.assign(attempt, facts);
      return Promise.reject(new MeshError(code, 'no', { detail }));
    },
    { attempts: 3, totalMs: 10_000 },
    { clock, backoff: new Backoff({ baseMs: 50, maxMs: 1_000 }) },
  ).catch(() => undefined);
  for (let step = 0; step < 5; step += 1) {
    await clock.advance(0);
    await clock.advance(1_000);
  }
  await connecting;
  return made;
}

const ONCE = ['TLS_PEER_IDENTITY', 'TLS_PEER_REVOKED', 'POLICY_DENIED'] as const;
const BEFORE = [
  'UPSTREAM_CONNECT',
  'UPSTREAM_TIMEOUT',
  'UPSTREAM_NETWORK_POLICY',
  'TLS_HANDSHAKE',
  'TUNNEL_RESET',
  'NATIVE_SYSCALL',
] as const;

test('before the peer is asked, what another attempt may change is tried again', async (t) => {
  for (const code of [...BEFORE, 'TUNNEL_CLOSED'] as const) {
    t.is(await attempts(code, {}), 3, code);
  }
  for (const code of ONCE) t.is(await attempts(code, {}), 1, code);
});

test('once it was asked, only what it says itself of a request it did not serve', async (t) => {
  t.is(await attempts('TUNNEL_CLOSED', { asked: true }), 3);
  for (const code of [...BEFORE, ...ONCE]) t.is(await attempts(code, { asked: true }), 1, code);
  for (const status of [400, 401])
    t.is(await attempts('TUNNEL_REFUSED', { asked: true, status }), 1);
});

test('an application that refuses is asked once, and elsewhere where there is another endpoint', async (t) => {
  const refused = { asked: true, status: 503 };
  t.is(await attempts('TUNNEL_REFUSED', refused), 1);
  t.is(await attempts('TUNNEL_REFUSED', { ...refused, elsewhere: true }), 3);
  // The failure of a gateway before the peer.
  t.is(await attempts('TUNNEL_REFUSED', { status: 503 }), 3);
  t.is(await attempts('UPSTREAM_CONNECT', { direct: true }), 1);
  t.is(await attempts('UPSTREAM_CONNECT', { direct: true, elsewhere: true }), 3);
  t.is(await attempts('UPSTREAM_TIMEOUT', { direct: true }), 3);
});
