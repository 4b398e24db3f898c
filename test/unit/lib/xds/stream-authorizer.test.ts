import { Metadata, status } from '@grpc/grpc-js';
import test from 'ava';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import type { TokenHolder } from '../../../../lib/identity/token.ts';
import { MAX_ADDRESSES } from '../../../../lib/grpc/caller-failures.ts';
import {
  MAX_FAILURES_PER_SECOND,
  StreamAuthorizer,
} from '../../../../lib/xds/stream-authorizer.ts';
import type { StreamDecision } from '../../../../lib/xds/stream-authorizer.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { accountSubject, nodeSubject } from '../../../support/token-issuer.ts';

/** Makes an authorizer for tokens `good`, `plain` (an unlisted account) and invalid ones; `checks` counts signature checks. */
function kit(streamsPerSecond = 50) {
  const clock = new FakeClock();
  const counted = { checks: 0 };
  let away = false;
  const authorizer = new StreamAuthorizer({
    authenticate: (token): Promise<TokenHolder> => {
      counted.checks += 1;
      if (away) return Promise.reject(new MeshError('STATE_UNAVAILABLE', 'no keys yet'));
      const validUntilMs = clock.now() + 60_000;
      if (token === 'good') return Promise.resolve({ ...nodeSubject('n'), validUntilMs });
      if (token === 'plain') {
        return Promise.resolve({ ...accountSubject('demo', 'web'), validUntilMs });
      }
      return Promise.reject(new MeshError('IDENTITY_TOKEN', 'the token is refused: nonsense'));
    },
    accounts: ['istio-system/ztunnel'],
    streamsPerSecond,
    clock,
  });
  const call = (token: string | null, peer = '10.0.0.1:40000'): Promise<StreamDecision> => {
    const metadata = new Metadata();
    if (token !== null) metadata.set('authorization', `Bearer ${token}`);
    return authorizer.decide(metadata, peer, 0);
  };
  return { clock, counted, call, loseKeys: () => (away = true) };
}

const codeOf = (decision: StreamDecision): status =>
  decision.admitted ? status.OK : decision.refusal.code;

test('callers without a token take nothing from those with one', async (t) => {
  const { call, counted } = kit();
  const codes = new Set<status>();
  for (let count = 0; count < 1_000; count += 1) codes.add(codeOf(await call(null)));
  t.deepEqual([...codes], [status.UNAUTHENTICATED, status.RESOURCE_EXHAUSTED]);
  t.is(counted.checks, 0);
  for (let count = 0; count < 50; count += 1) t.true((await call('good')).admitted);
});

test('bad tokens are checked at a rate of their address, and cost others nothing', async (t) => {
  const { call, counted, clock } = kit();
  const burst = 2 * MAX_FAILURES_PER_SECOND;
  for (let count = 0; count < 10 * burst; count += 1) await call('bad', `10.0.0.9:${count}`);
  t.is(counted.checks, burst);
  for (let count = 0; count < 50; count += 1) t.true((await call('good', '10.0.0.1:1')).admitted);
  t.is(codeOf(await call('bad', '[fd00::9]:1')), status.UNAUTHENTICATED);
  await clock.advance(1_000);
  t.true((await call('good', '10.0.0.9:5')).admitted, 'the address may come again');
});

test('a caller that was admitted lately is not shut out by others of its address', async (t) => {
  const { call, counted, loseKeys } = kit(1_000);
  const burst = 2 * MAX_FAILURES_PER_SECOND;
  t.true((await call('good')).admitted);
  for (let count = 0; count <= burst; count += 1) await call('bad');
  t.is(codeOf(await call('bad')), status.RESOURCE_EXHAUSTED);
  for (let count = 0; count < burst; count += 1) t.true((await call('good')).admitted);
  const before = counted.checks;
  await call('good');
  t.is(counted.checks, before + 1, 'and its token is checked all the same');
  loseKeys();
  t.is(codeOf(await call('good')), status.UNAVAILABLE);
  t.is(codeOf(await call('other')), status.RESOURCE_EXHAUSTED);
});

test('an account that is not configured is refused and counts as a failure of its address', async (t) => {
  const { call } = kit();
  const first = await call('plain');
  t.like(first, { admitted: false, refusal: { reason: 'account' } });
  t.is(codeOf(first), status.PERMISSION_DENIED);
  t.regex(first.admitted ? '' : first.refusal.text, /^demo\/web may not read the mesh/);
  for (let count = 0; count < 2 * MAX_FAILURES_PER_SECOND; count += 1) await call('plain');
  t.is(codeOf(await call('plain')), status.RESOURCE_EXHAUSTED);
});

test('the rate of new streams is that of admitted callers', async (t) => {
  const { call, clock } = kit(3);
  const codes = [];
  for (let count = 0; count < 4; count += 1) codes.push(codeOf(await call('good')));
  t.deepEqual(codes, [status.OK, status.OK, status.OK, status.RESOURCE_EXHAUSTED]);
  await clock.advance(1_000);
  t.true((await call('good')).admitted);
});

test('no address is blamed while no token can be checked', async (t) => {
  const { call, loseKeys } = kit();
  loseKeys();
  for (let count = 0; count < 3 * MAX_FAILURES_PER_SECOND; count += 1) {
    t.is(codeOf(await call('good')), status.UNAVAILABLE);
  }
});

test('the table of addresses is bounded', async (t) => {
  const { call, counted } = kit();
  const burst = 2 * MAX_FAILURES_PER_SECOND;
  for (let count = 0; count <= burst; count += 1) await call('bad', '10.0.0.9:1');
  t.is(counted.checks, burst);
  for (let count = 0; count < MAX_ADDRESSES; count += 1) {
    await call('bad', `10.${1 + (count >> 16)}.${(count >> 8) & 255}.${count & 255}:1`);
  }
  const before = counted.checks;
  await call('bad', '10.0.0.9:1');
  t.is(counted.checks, before + 1, 'the address that was quiet longest is forgotten');
});
