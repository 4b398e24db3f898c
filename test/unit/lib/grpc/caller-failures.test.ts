import test from 'ava';
import {
  CallerFailures,
  MAX_ADMITTED_TOKENS,
  callerAddress,
} from '../../../../lib/grpc/caller-failures.ts';
import type { CallEnd } from '../../../../lib/grpc/caller-failures.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const PER_SECOND = 5;
const BURST = 2 * PER_SECOND;

function kit() {
  const failures = new CallerFailures(PER_SECOND, new FakeClock());
  /** Makes a call; false when it was turned away. */
  const call = (token: string | null, how: CallEnd, peer = '10.0.0.1:1'): boolean => {
    const begun = failures.begin(peer, token);
    begun?.end(how);
    return begun !== null;
  };
  const exhaust = (peer = '10.0.0.1:1'): void => {
    while (call('bad', 'failed', peer));
  };
  return { failures, call, exhaust };
}

test('only failed calls count, and calls without a token apart', (t) => {
  const { call } = kit();
  for (let count = 0; count < 3 * BURST; count += 1) {
    t.true(call(`good ${count}`, 'admitted'));
    t.true(call(`late ${count}`, 'uncounted'));
  }
  for (let count = 0; count < BURST; count += 1) t.true(call(null, 'failed'));
  t.false(call(null, 'failed'));
  for (let count = 0; count < BURST; count += 1) t.true(call('bad', 'failed'));
  t.false(call('bad', 'failed'));
});

test('a token that was admitted lately passes the limit of its address, until it fails', (t) => {
  const { call, exhaust } = kit();
  t.true(call('known', 'admitted'));
  exhaust();
  t.false(call('new', 'admitted'));
  for (let count = 0; count < 3 * BURST; count += 1) t.true(call('known', 'admitted'));
  t.true(call('known', 'uncounted'), 'while no token can be checked');
  t.true(call('known', 'failed'), 'it has expired');
  t.false(call('known', 'failed'));
});

test('the tokens that were admitted longest ago are forgotten', (t) => {
  const { call, exhaust } = kit();
  for (let count = 0; count <= MAX_ADMITTED_TOKENS; count += 1) {
    call(`t${count}`, 'admitted');
    if (count % 100 === 0) call('t1', 'admitted');
  }
  exhaust();
  t.false(call('t0', 'admitted'));
  t.true(call('t1', 'admitted'));
  t.true(call(`t${MAX_ADMITTED_TOKENS}`, 'admitted'));
});

test('callers of one IPv6 /64 count as one', (t) => {
  const { call, exhaust } = kit();
  exhaust('fd00:0:0:1::7:4000');
  t.false(call('bad', 'failed', 'fd00:0:0:1:9999:8888:7777:6666:1'));
  t.true(call('bad', 'failed', 'fd00:0:0:2::7:4000'));
});

test('the address of a peer is read in every form', (t) => {
  for (const [peer, address] of [
    ['10.0.0.1:40000', '10.0.0.1'],
    ['::ffff:10.0.0.1:40000', '10.0.0.1'],
    ['[::ffff:10.0.0.1]:40000', '10.0.0.1'],
    ['fd00::1:40000', 'fd00000000000000'],
    ['[fd00::1]:40000', 'fd00000000000000'],
    ['unknown', 'unknown'],
  ] as const) {
    t.is(callerAddress(peer), address);
  }
});
