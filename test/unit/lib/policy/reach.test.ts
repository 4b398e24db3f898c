import { istio } from '#proto/resources.js';
import test from 'ava';
import { listPolicies } from '../../../../lib/policy/listing.ts';
import { PolicyStore } from '../../../../lib/policy/policy-store.ts';
import { reachOf } from '../../../../lib/policy/reach.ts';
import { decodeAuthorization } from '../../../../lib/xds/resources/authorization.ts';
import { AUTHORIZATION_TYPE } from '../../../../lib/xds/type-urls.ts';

const { Action, Scope } = istio.security;

/** Encodes a policy with a port above the highest one, which cannot be decoded. */
function bad(scope: number, namespace = 'istio-system'): Uint8Array {
  return istio.security.Authorization.encode({
    name: 'x',
    namespace,
    scope,
    action: Action.DENY,
    rules: [{ clauses: [{ matches: [{ destinationPorts: [65_616] }] }] }],
  }).finish();
}

const open = () => new PolicyStore(decodeAuthorization, { unknownReference: 'deny' });
const denyAll = (store: PolicyStore, namespace: string) =>
  store.setFor({ namespace, authorizationPolicies: [] }).denyAll;

// spec: policy.md §1, spec: policy.md §2
test('a policy for all namespaces that cannot be decoded denies in all of them', (t) => {
  const store = open();
  t.is(store.apply('istio-system/x', bad(Scope.GLOBAL)).error?.code, 'XDS_RESOURCE');
  t.is(denyAll(store, 'app'), 'istio-system/x');
  store.apply('istio-system/x', null);
  t.is(denyAll(store, 'app'), null);
});

// spec: policy.md §1, spec: policy.md §2
test('a namespace policy denies there and in its name, one without a namespace in its name alone', (t) => {
  const store = open();
  const denied = () => ['a', 'b', 'app'].map((namespace) => denyAll(store, namespace) !== null);
  store.apply('a/x', bad(Scope.NAMESPACE, ''));
  t.deepEqual(denied(), [true, false, false]);
  store.apply('a/x', bad(Scope.NAMESPACE, 'b'));
  t.deepEqual(denied(), [true, true, false]);
});

// spec: policy.md §1, spec: policy.md §2
test('one that binds by selector, or by a scope not known here, denies in the namespace of its name alone', (t) => {
  for (const scope of [Scope.WORKLOAD_SELECTOR, 7]) {
    const store = open();
    store.apply('a/x', bad(scope, 'a'));
    t.deepEqual([denyAll(store, 'a') !== null, denyAll(store, 'app')], [true, null]);
  }
});

test('a scope that cannot be read reaches nobody by itself, one before the damage as far as it says', (t) => {
  const whole = bad(Scope.NAMESPACE, 'app');
  t.is(reachOf(whole), 'app');
  t.is(reachOf(bad(Scope.GLOBAL)), '');
  t.is(reachOf(new Uint8Array()), '');
  t.is(reachOf(new Uint8Array([255, 255, 255])), null);
  t.is(reachOf(new Uint8Array(64).fill(255)), null, 'a number without end');
  t.is(
    reachOf(new Uint8Array([0x12, 0xff, 0xff, 0xff, 0xff, 0x0f])),
    null,
    'a length without bytes',
  );
  // name (3 bytes), namespace (5), scope (2), action (2), rules. A cut between fields before the scope cannot be detected.
  for (let length = 10; length < whole.length; length += 1) {
    t.is(reachOf(whole.subarray(0, length)), 'app', `cut after ${length}`);
  }
});

test('fields of any form before the scope are passed over', (t) => {
  const fields = [
    [0x79, 1, 2, 3, 4, 5, 6, 7, 8], // 15: 64 bits
    [0x7d, 1, 2, 3, 4], // 15: 32 bits
    [0x78, 0xff, 0x01], // 15: varint
    [0x12, 1, 0x62], // namespace "b"
    [0x18, 1], // scope NAMESPACE
  ];
  t.is(reachOf(new Uint8Array(fields.flat())), 'b');
});

// spec: policy.md §1, spec: policy.md §2
test('what the ingester rejected reaches as far as its row says', (t) => {
  const row = (reach?: string | null): Uint8Array => {
    const told = { type: AUTHORIZATION_TYPE, name: 'a/x', reason: 'bad port', at: '' };
    return Buffer.from(JSON.stringify(reach === undefined ? told : { ...told, reach }));
  };
  const cases: [Uint8Array, boolean[]][] = [
    [row(''), [true, true, true]],
    [row('b'), [true, true, false]],
    [row(null), [true, false, false]],
    [row(), [true, false, false]],
    [Buffer.from('no JSON'), [true, false, false]],
  ];
  for (const [value, denied] of cases) {
    const store = open();
    store.applyRejection(`${AUTHORIZATION_TYPE}/a/x`, value);
    t.deepEqual(
      ['a', 'b', 'app'].map((namespace) => denyAll(store, namespace) !== null),
      denied,
      value.toString(),
    );
  }
});

test('the list of policies says how far it reaches', (t) => {
  const at = (key: string, bytes: Uint8Array) =>
    listPolicies(
      { authorizations: [[key, bytes]], rejections: [], programs: [] },
      decodeAuthorization,
    ).lines[0]?.reason ?? '';
  t.regex(at('istio-system/x', bad(Scope.GLOBAL)), /everything inbound is refused$/);
  t.regex(at('app/x', bad(Scope.NAMESPACE, 'app')), /inbound to namespace app is refused$/);
  t.regex(at('app/x', bad(Scope.NAMESPACE, 'b')), /inbound to namespaces app and b is refused$/);
});
