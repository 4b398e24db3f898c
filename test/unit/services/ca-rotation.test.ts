/** Tests the steps of a root's rotation: which holders each waits for, and that trust never has a gap. */
import test from 'ava';
import type { MeshError } from '../../../lib/errors/mesh-error.ts';
import type { Holder } from '../../../services/ca/holders.ts';
import {
  abandonRotation,
  beginRotation,
  isExpiring,
  newRootOf,
  nextState,
  skipHolders,
  waitOf,
} from '../../../services/ca/rotation.ts';
import { nameOf, newRoot, newState } from '../../../services/ca/state.ts';
import type { CaState } from '../../../services/ca/state.ts';

const NOW = Date.UTC(2026, 10, 1);
const SETTLE_MS = 60_000;
const HOUR_MS = 3_600_000;

const at = (nowMs: number): { nowMs: number; settleMs: number } => ({
  nowMs,
  settleMs: SETTLE_MS,
});

async function begun(): Promise<{ state: CaState; oldName: string; newName: string }> {
  const state = await newState('cluster.local', NOW);
  const next = await newRoot('cluster.local', NOW);
  const rotating = beginRotation(state, next, 'asked', NOW);
  return {
    state: rotating,
    oldName: nameOf(state.signing.certificatePem),
    newName: nameOf(next.certificatePem),
  };
}

/** Takes steps until the state stays the same. */
function settled(state: CaState, holders: readonly Holder[], nowMs: number): CaState {
  const next = nextState(state, holders, at(nowMs));
  return next === state ? state : settled(next, holders, nowMs);
}

test('every step waits: for its own spread, for all holders, for the end of what the old key signed', async (t) => {
  const { state, oldName, newName } = await begun();
  const old = state.signing.certificatePem;
  t.is(state.rotation?.step, 'prepare');
  t.is(state.rootsPem, old, 'nobody trusts the new root yet');
  t.is(settled(state, [], NOW + SETTLE_MS - 1), state);

  let now = NOW + SETTLE_MS;
  const node = (name: string, roots: string[] | null): Holder => ({
    name,
    roots,
    untilMs: NOW + 24 * HOUR_MS,
  });
  const before = [node('a', [oldName]), node('b', [oldName])];
  const distributing = settled(state, before, now);
  t.is(distributing.rotation?.step, 'distribute');
  t.is(distributing.signing.certificatePem, old, 'the old key signs on');
  t.true(distributing.rootsPem.includes(old));
  const rotation = distributing.rotation;
  if (rotation === null) throw new Error('the rotation ended');
  t.is(newRootOf(distributing, rotation), newName);

  now += SETTLE_MS;
  const some = [node('a', [oldName, newName]), node('b', [oldName])];
  const waiting = settled(distributing, some, now);
  t.is(waiting.rotation?.step, 'distribute');
  t.deepEqual(waitOf(waiting, waiting.rotation ?? rotation, some, at(now)).missing, ['b']);

  const all = [node('a', [oldName, newName]), node('b', [oldName, newName])];
  const signing = settled(waiting, all, now);
  t.is(signing.rotation?.step, 'sign');
  t.is(nameOf(signing.signing.certificatePem), newName);
  t.true(signing.rootsPem.includes(old), 'certificates of the old key are still trusted');
  t.is(signing.rotation?.other.keyPem, null, 'the old key is gone');

  now += SETTLE_MS;
  const held = settled(signing, all, now);
  t.is(held.rotation?.waitUntilMs, NOW + 24 * HOUR_MS);
  t.is(settled(held, all, NOW + 24 * HOUR_MS - 1), held);
  const retired = settled(held, [], NOW + 24 * HOUR_MS);
  t.is(retired.rotation, null);
  t.is(retired.rootsPem, retired.signing.certificatePem);
});

test('a proxy that reports no roots is waited for until the certificates it had have ended', async (t) => {
  const { state, newName } = await begun();
  const end = NOW + 24 * HOUR_MS;
  const silent = [{ name: 'z', roots: null, untilMs: end }];
  const distributing = settled(state, silent, NOW + SETTLE_MS);
  const waiting = settled(distributing, silent, NOW + 2 * SETTLE_MS);
  t.is(waiting.rotation?.waitUntilMs, end);
  // Renewals bring the new root with the answer, and do not make the step longer.
  const renewed = [{ name: 'z', roots: null, untilMs: end + 12 * HOUR_MS }];
  const { rotation } = waiting;
  if (rotation === null) throw new Error('the rotation ended');
  const wait = waitOf(waiting, rotation, renewed, at(end - 1));
  t.deepEqual(wait.missing, ['z']);
  t.is(wait.untilMs, end);
  t.is(settled(waiting, renewed, end - 1), waiting);
  const signing = settled(waiting, renewed, end);
  t.is(signing.rotation?.step, 'sign');
  t.is(nameOf(signing.signing.certificatePem), newName);
});

test('a holder whose certificates have ended holds nothing up', async (t) => {
  const { state, oldName } = await begun();
  const gone = [{ name: 'gone', roots: [oldName], untilMs: NOW + SETTLE_MS }];
  const distributing = settled(state, gone, NOW + SETTLE_MS);
  t.is(settled(distributing, gone, NOW + 2 * SETTLE_MS).rotation?.step, 'sign');
});

test('a holder that is gone for good can be skipped in every step, and only a holder can', async (t) => {
  const { state, oldName } = await begun();
  const end = NOW + 24 * HOUR_MS;
  const node = { name: 'node', roots: [oldName], untilMs: end };
  const silent = { name: 'silent', roots: null, untilMs: end + HOUR_MS };
  const holders = [node, silent];
  t.throws<MeshError>(() => skipHolders(state, ['nobody'], holders, NOW), {
    code: 'STATE_INVALID',
    message: /nobody: the rotation does not wait for a holder of this name/,
  });
  let now = NOW + SETTLE_MS;
  const distributing = settled(state, holders, now);
  now += SETTLE_MS;
  const waiting = settled(distributing, holders, now);
  t.is(waiting.rotation?.waitUntilMs, silent.untilMs);
  const one = skipHolders(waiting, ['silent'], holders, now);
  t.is(one.rotation?.waitUntilMs, 0, 'no other holder reports nothing');
  const { rotation } = one;
  if (rotation === null) throw new Error('the rotation ended');
  t.deepEqual(waitOf(one, rotation, holders, at(now)).missing, ['node']);
  const both = skipHolders(one, ['node'], holders, now);
  t.deepEqual(both.rotation?.skipped, ['node', 'silent']);
  t.is(skipHolders(both, ['node'], holders, now).rotation?.skipped?.length, 2, 'again is no error');
  const other = { name: 'other', roots: [oldName], untilMs: now + HOUR_MS };
  const signing = settled({ ...both }, [...holders, other], now);
  t.is(signing.rotation?.step, 'distribute', 'a holder that came later is waited for');
  const signed = settled(both, holders, now);
  t.is(signed.rotation?.step, 'sign');
  now += SETTLE_MS;
  const held = settled(signed, [...holders, other], now);
  t.is(held.rotation?.waitUntilMs, other.untilMs, 'the skipped are not waited for either');
  const skipped = skipHolders(held, ['other'], [...holders, other], now);
  t.is(settled(skipped, [...holders, other], now).rotation, null);
  t.throws(() => skipHolders(settled(skipped, [], now), ['other'], [other], now), {
    message: /no rotation is in progress/,
  });
});

test('a rotation can be given up until the new key signs, and none begins during another', async (t) => {
  const { state } = await begun();
  const other = await newRoot('cluster.local', NOW);
  t.throws<MeshError>(() => beginRotation(state, other, 'asked', NOW), {
    message: /in progress already, at the step prepare/,
  });
  const distributing = settled(state, [], NOW + SETTLE_MS);
  const given = abandonRotation(distributing);
  t.is(given.rotation, null);
  t.is(given.rootsPem, state.signing.certificatePem);
  t.throws(() => abandonRotation(given), { message: /no rotation/ });
  const signing = settled(distributing, [], NOW + 2 * SETTLE_MS);
  t.is(signing.rotation?.step, 'sign');
  t.throws(() => abandonRotation(signing), { message: /signs already/ });
});

test('the last fifth of a life is for renewal', (t) => {
  t.false(isExpiring(0, 1_000, 799));
  t.true(isExpiring(0, 1_000, 800));
});
