import test from 'ava';
import { compileProgram } from '../../../../lib/policy/compile.ts';
import { describeVerdict, judge } from '../../../../lib/policy/evaluate.ts';
import { listPolicies } from '../../../../lib/policy/listing.ts';
import { PolicyStore } from '../../../../lib/policy/policy-store.ts';
import { decodeProgram, encodeProgram } from '../../../../lib/policy/program-codec.ts';
import { EMPTY_SET_ID, policySetId } from '../../../../lib/policy/set-id.ts';
import type { Authorization } from '../../../../lib/policy/model.ts';
import {
  decodeAuthorization,
  encodeAuthorization,
} from '../../../../lib/xds/resources/authorization.ts';
import { AUTHORIZATION_TYPE, ADDRESS_TYPE } from '../../../../lib/xds/type-urls.ts';
import { connection, policy } from '../../../support/policy-kit.ts';

const GARBAGE = new Uint8Array([255, 255, 255]);
const W = { uid: 'w', namespace: 'app', authorizationPolicies: [] as readonly string[] };
const open = () => new PolicyStore(decodeAuthorization, { unknownReference: 'deny' });
const put = (store: PolicyStore, key: string, item: Authorization) =>
  store.apply(key, encodeAuthorization(item));
const rejection = (name: string, type: string = AUTHORIZATION_TYPE): Uint8Array =>
  Buffer.from(JSON.stringify({ type, name, reason: 'bad port', at: '2026-01-01T00:00:00Z' }));

test('sets: equal members are one set, in whatever order; other contents are another', (t) => {
  const a = { key: 'app/a', digest: '1' };
  const b = { key: 'app/b', digest: '2' };
  t.is(policySetId([a, b]), policySetId([b, a]));
  t.not(policySetId([a, b]), policySetId([a, { ...b, digest: '3' }]));
  t.not(policySetId([a]), EMPTY_SET_ID);
  t.not(
    policySetId([
      { key: 'a', digest: 'b' },
      { key: 'c', digest: 'd' },
    ]),
    policySetId([{ key: 'a', digest: 'b,c,d' }]),
  );
});

// spec: policy.md §2
test('namespace, global and listed policies bind; an empty namespace binds like a global one', (t) => {
  const store = open();
  put(store, 'app/ns', policy('ALLOW', []));
  put(store, 'root/global', policy('DENY', [], { scope: 'GLOBAL', namespace: 'root' }));
  put(store, 'x/everywhere', policy('DENY', [], { namespace: '' }));
  put(store, 'app/selected', policy('DENY', [], { scope: 'WORKLOAD_SELECTOR' }));
  put(store, 'other/ns', policy('DENY', [], { namespace: 'other' }));
  const keys = (listed: readonly string[]) =>
    store.setFor({ ...W, authorizationPolicies: listed }).policies.map(({ key }) => key);
  t.deepEqual(keys([]), ['app/ns', 'root/global', 'x/everywhere']);
  t.deepEqual(keys(['app/selected']), ['app/ns', 'app/selected', 'root/global', 'x/everywhere']);
  t.deepEqual(store.setFor({ namespace: 'none', authorizationPolicies: [] }).policies.length, 2);
});

test('a policy that changes its scope, or is removed, no longer binds', (t) => {
  const store = open();
  put(store, 'app/p', policy('DENY', [[]]));
  t.is(store.setFor(W).policies.length, 1);
  put(store, 'app/p', policy('DENY', [[]], { scope: 'WORKLOAD_SELECTOR' }));
  t.is(store.setFor(W).policies.length, 0);
  put(store, 'app/p', policy('DENY', [[]], { scope: 'GLOBAL' }));
  t.is(store.setFor({ ...W, namespace: 'z' }).policies.length, 1);
  t.true(store.apply('app/p', null).changed);
  t.is(store.setFor(W).setId, EMPTY_SET_ID);
  t.false(store.apply('app/p', null).changed);
});

test('the same bytes again are no change', (t) => {
  const store = open();
  t.true(put(store, 'app/p', policy('ALLOW', [])).changed);
  const { revision } = store;
  t.false(put(store, 'app/p', policy('ALLOW', [])).changed);
  t.is(store.revision, revision);
});

test('a rejection without a good version refuses its namespace and whoever lists it, and nobody else', (t) => {
  const store = open();
  store.applyRejection(`${AUTHORIZATION_TYPE}/app/bad`, rejection('app/bad'));
  t.is(store.setFor(W).denyAll, 'app/bad');
  t.is(store.setFor({ namespace: 'b', authorizationPolicies: [] }).denyAll, null);
  const lists = store.setFor({ namespace: 'b', authorizationPolicies: ['app/bad'] });
  t.is(lists.denyAll, 'app/bad');
  t.deepEqual(lists.missing, [], 'it is refused, not unknown');
  const { policy: effective } = store.effectiveFor(W, 0);
  const verdict = judge(effective, compileProgram(effective.setId, []), connection('A'), 'deny');
  t.regex(describeVerdict(verdict), /app\/bad cannot be decoded/);
});

test('a rejection beside a good version leaves that in force, and goes with its row', (t) => {
  const store = open();
  put(store, 'app/p', policy('DENY', [[]]));
  const row = `${AUTHORIZATION_TYPE}/app/p`;
  store.applyRejection(row, rejection('app/p'));
  t.is(store.setFor(W).denyAll, null);
  t.is(store.setFor(W).policies.length, 1);
  store.apply('app/p', null);
  t.is(store.setFor(W).denyAll, 'app/p');
  t.true(store.applyRejection(row, null).changed);
  t.is(store.setFor(W).denyAll, null);
});

test('an unreadable rejection row counts by its key; rows on other types do not count', (t) => {
  const store = open();
  store.applyRejection(`${AUTHORIZATION_TYPE}/app/odd`, GARBAGE);
  t.is(store.setFor(W).denyAll, 'app/odd');
  store.applyRejection(`${AUTHORIZATION_TYPE}/app/odd`, null);
  t.false(
    store.applyRejection(`${ADDRESS_TYPE}/app/svc`, rejection('app/svc', ADDRESS_TYPE)).changed,
  );
  t.is(store.setFor(W).denyAll, null);
});

test('a good version ends what an undecodable one did', (t) => {
  const store = open();
  t.is(store.apply('app/p', GARBAGE).error?.code, 'XDS_RESOURCE');
  t.not(store.setFor(W).denyAll, null);
  put(store, 'app/p', policy('ALLOW', [[]]));
  t.is(store.setFor(W).denyAll, null);
});

test("the wait for a missing policy is each workload's own, and begins anew when it lists it again", (t) => {
  const store = open();
  const lists = { ...W, authorizationPolicies: ['app/missing'] };
  store.effectiveFor(lists, 0);
  t.false(store.effectiveFor(lists, 5_000).policy.pending);
  t.true(store.effectiveFor({ ...lists, uid: 'new' }, 5_000).policy.pending);
  store.effectiveFor(W, 6_000);
  t.true(store.effectiveFor(lists, 7_000).policy.pending);
  put(store, 'app/missing', policy('ALLOW', [[]], { scope: 'WORKLOAD_SELECTOR' }));
  t.like(store.effectiveFor(lists, 7_001).policy, { pending: false, unknown: [] });
  store.apply('app/missing', null);
  t.true(store.effectiveFor(lists, 20_000).policy.pending);
});

test('of several missing policies the first that is overdue denies', (t) => {
  const store = open();
  store.effectiveFor({ ...W, authorizationPolicies: ['app/z'] }, 0);
  const { policy: effective } = store.effectiveFor(
    { ...W, authorizationPolicies: ['app/a', 'app/z'] },
    5_000,
  );
  t.deepEqual(effective.unknown, ['app/z', 'app/a']);
  t.false(effective.pending);
});

test('with ignore nothing is waited for', (t) => {
  const store = new PolicyStore(decodeAuthorization, { unknownReference: 'ignore' });
  const { policy: effective, pendingUntilMs } = store.effectiveFor(
    { ...W, authorizationPolicies: ['app/missing'] },
    0,
  );
  t.like(effective, { pending: false, unknown: ['app/missing'] });
  t.is(pendingUntilMs, null);
  t.true(judge(effective, compileProgram('', []), connection('A'), 'ignore').allowed);
});

test('program rows that are none, of another set or another format are refused by name', (t) => {
  const program = compileProgram('s1', [{ key: 'app/p', policy: policy('DENY', [[]]) }]);
  const text = (value: unknown) => Buffer.from(JSON.stringify(value));
  t.deepEqual(decodeProgram('s1', encodeProgram(program)), program);
  for (const row of [
    GARBAGE,
    text(null),
    text({ ...program, version: 2 }),
    text({ ...program, deny: [{ key: 'app/p' }] }),
    encodeProgram({ ...program, setId: 's2' }),
  ]) {
    const error = t.throws(() => decodeProgram('s1', row), { code: 'POLICY_INVALID' });
    t.regex(error?.message ?? '', /set s1/);
  }
});

test('the listing tells what has become of each policy', (t) => {
  const active = policy('ALLOW', [[]], { name: 'active' });
  const row = (item: Authorization) => encodeAuthorization(item);
  const program = compileProgram('s', [
    { key: 'app/active', policy: active },
    { key: 'app/dry', policy: { ...active, dryRun: true } },
  ]);
  const { lines, unreadable } = listPolicies(
    {
      authorizations: [
        ['app/unused', row(policy('DENY', [], { scope: 'WORKLOAD_SELECTOR' }))],
        ['app/active', row(active)],
        ['app/dry', row({ ...active, dryRun: true })],
        ['app/stale', row(policy('DENY', []))],
        ['app/garbage', GARBAGE],
      ],
      rejections: [
        [`${AUTHORIZATION_TYPE}/app/stale`, rejection('app/stale')],
        [`${AUTHORIZATION_TYPE}/app/bad`, rejection('app/bad')],
      ],
      programs: [
        ['s', encodeProgram(program)],
        ['t', GARBAGE],
      ],
    },
    decodeAuthorization,
  );
  t.deepEqual(
    lines.map(({ name, action, scope, state }) => [name, action, scope, state]),
    [
      ['active', 'ALLOW', 'NAMESPACE', 'active'],
      ['bad', null, null, 'rejected'],
      ['dry', 'ALLOW', 'NAMESPACE', 'active'],
      ['garbage', null, null, 'rejected'],
      ['stale', 'DENY', 'NAMESPACE', 'stale'],
      ['unused', 'DENY', 'WORKLOAD_SELECTOR', 'unused'],
    ],
  );
  t.regex(lines[1]?.reason ?? '', /^bad port; everything inbound to namespace app is refused/);
  t.deepEqual(
    unreadable.map(({ key }) => key),
    ['app/garbage', 't'],
  );
});
