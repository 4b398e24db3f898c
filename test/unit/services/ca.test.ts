import test from 'ava';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { decideGrant, decideLifetime } from '../../../services/ca/authorize.ts';
import type { GrantRules } from '../../../services/ca/authorize.ts';
import { caConfig } from '../../../services/ca/config.ts';
import { CallerRates, Gate } from '../../../lib/async/gate.ts';
import { PodTable, parsePod } from '../../../services/ca/pods.ts';
import type { PodRegistry } from '../../../services/ca/pods.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { nodePod, podObject } from '../../support/pods-api.ts';
import { accountSubject, nodeSubject } from '../../support/token-issuer.ts';

const rules: GrantRules = {
  trustDomain: 'cluster.local',
  trustDomainAliases: [],
  trustedNodeAccounts: ['istio-system/ztunnel'],
  servingNames: { 'istio-system/istiod': [{ kind: 'dns', value: 'istiod' }] },
};

/** Makes a registry of these pods and the proxies of two nodes. */
function registry(...pods: readonly unknown[]): PodRegistry {
  return registryOf(nodePod('node-1'), nodePod('node-2'), ...pods);
}

function registryOf(...pods: readonly unknown[]): PodRegistry {
  const table = new PodTable();
  table.replace(pods.map(parsePod));
  return {
    synced: true,
    runsOnNode: (node, namespace, account) => table.runsOnNode(node, namespace, account),
    find: (namespace, name, uid) => table.find(namespace, name, uid),
  };
}

const web = podObject('demo', 'web-1', { node: 'node-1', account: 'web' });
const WEB = 'spiffe://cluster.local/ns/demo/sa/web';

test('a node is granted the identity of a pod it runs, and nothing but that', (t) => {
  const grant = decideGrant(nodeSubject('node-1'), WEB, rules, registry(web));
  t.deepEqual(grant, { granted: true, identity: WEB, names: [{ kind: 'uri', value: WEB }] });
  t.false(decideGrant(nodeSubject('node-2'), WEB, rules, registry(web)).granted);
});

test('a node is granted an identity of an alias of the trust domain, and a caller none for itself', (t) => {
  const aliased = { ...rules, trustDomain: 'new.example', trustDomainAliases: ['cluster.local'] };
  t.like(decideGrant(nodeSubject('node-1'), WEB, aliased, registry(web)), { identity: WEB });
  t.like(decideGrant(nodeSubject('node-2'), WEB, aliased, registry(web)), { granted: false });
  const foreign = WEB.replace('cluster.local', 'other.example');
  const refused = decideGrant(nodeSubject('node-1'), foreign, aliased, registry(web));
  t.like(refused, { granted: false, reason: 'foreign_trust_domain' });
  t.regex(
    refused.granted ? '' : refused.detail,
    /not of the trust domain new\.example, nor of its aliases cluster\.local$/,
  );
  const own = decideGrant(nodeSubject('node-1'), null, aliased, registry(web));
  t.like(own, { identity: 'spiffe://new.example/ns/istio-system/sa/ztunnel' });
});

const phase = (value: string): Record<string, unknown> =>
  podObject('demo', 'web-1', { node: 'node-1', account: 'web', phase: value });

test('a failed pod does not count, one that has succeeded does', (t) => {
  t.false(decideGrant(nodeSubject('node-1'), WEB, rules, registry(phase('Failed'))).granted);
  t.true(decideGrant(nodeSubject('node-1'), WEB, rules, registry(phase('Succeeded'))).granted);
});

test('without a node claim the node is that of the caller pod', (t) => {
  const caller = { ...nodeSubject('node-1'), node: null };
  t.true(decideGrant(caller, WEB, rules, registry(web)).granted);
  t.like(decideGrant({ ...caller, pod: null }, WEB, rules, registry(web)), {
    reason: 'unknown_node',
  });
  const unscheduled = { ...nodePod('node-1'), spec: { serviceAccountName: 'ztunnel' } };
  t.like(decideGrant(caller, WEB, rules, registryOf(web, unscheduled)), { reason: 'unknown_node' });
});

test('a token that is bound to a pod counts only while that pod lives', (t) => {
  const caller = nodeSubject('node-1');
  const pod = nodePod('node-1');
  const metadata = { namespace: 'istio-system', name: 'ztunnel-node-1', uid: 'recreated' };
  const spec = { nodeName: 'node-1', serviceAccountName: 'ztunnel' };
  const cases: readonly (readonly [string, readonly unknown[], RegExp])[] = [
    ['gone', [], /pod istio-system\/ztunnel-node-1 \(uid \S+\) of the token does not exist/],
    ['made anew', [{ ...pod, metadata }], /does not exist/],
    ['failed', [{ ...pod, status: { phase: 'Failed' } }], /has failed/],
    [
      'of another account',
      [{ ...pod, spec: { ...spec, serviceAccountName: 'default' } }],
      /runs as default, not as ztunnel/,
    ],
    [
      'elsewhere',
      [{ ...pod, spec: { ...spec, nodeName: 'node-2' } }],
      /runs on node-2, not on node-1/,
    ],
    ['not scheduled', [{ ...pod, spec: { ...spec, nodeName: '' } }], /runs on no node/],
  ];
  for (const [what, pods, detail] of cases) {
    for (const identity of [WEB, null]) {
      const grant = decideGrant(caller, identity, rules, registryOf(web, ...pods));
      t.like(grant, { granted: false, reason: 'unknown_caller_pod' }, what);
      t.regex(grant.granted ? '' : grant.detail, detail, what);
    }
  }
  t.true(decideGrant(caller, WEB, rules, registryOf(web, pod)).granted);
  const unbound = { ...caller, pod: null };
  t.true(decideGrant(unbound, WEB, rules, registryOf(web)).granted, 'bound to no pod');
  const never = { ...registryOf(), synced: false };
  t.true(decideGrant(caller, null, rules, never).granted, 'its own, while no pods are known');
  t.like(decideGrant(caller, WEB, rules, never), { reason: 'no_pod_registry' });
});

test('an account gets its own identity and the server names it was given', (t) => {
  const grant = decideGrant(accountSubject('istio-system', 'istiod'), null, rules, registry());
  t.deepEqual(grant.granted ? grant.names : null, [
    { kind: 'uri', value: 'spiffe://cluster.local/ns/istio-system/sa/istiod' },
    { kind: 'dns', value: 'istiod' },
  ]);
});

test('an account with server names renews, though its pod is not in the list of pods', (t) => {
  const pod = { name: 'istiod-1', uid: 'of-the-cluster' };
  const istiod = { ...accountSubject('istio-system', 'istiod'), pod };
  t.true(decideGrant(istiod, null, rules, registry()).granted);
  const other = { ...accountSubject('istio-system', 'other'), pod };
  t.like(decideGrant(other, null, rules, registry()), { reason: 'unknown_caller_pod' });
  const trusted = { ...rules, trustedNodeAccounts: ['istio-system/istiod'] };
  t.like(decideGrant(istiod, WEB, trusted, registry(web)), { reason: 'unknown_caller_pod' });
});

test('pods move, change and go', (t) => {
  const table = new PodTable();
  const put = (node: string, account = 'web'): void =>
    table.put(parsePod(podObject('demo', 'web-1', { node, account })));
  put('node-1');
  put('node-2');
  t.false(table.runsOnNode('node-1', 'demo', 'web'));
  t.true(table.runsOnNode('node-2', 'demo', 'web'));
  table.put(parsePod(podObject('demo', 'web-2', { node: 'node-2', account: 'web' })));
  table.remove('demo', 'web-1');
  t.true(table.runsOnNode('node-2', 'demo', 'web'));
  table.remove('demo', 'web-2');
  table.remove('demo', 'web-2');
  t.false(table.runsOnNode('node-2', 'demo', 'web'));
  t.deepEqual(table.all(), []);
});

test('what is no pod is refused with the field', (t) => {
  const error = t.throws(() => parsePod({ metadata: { name: 'x' }, spec: {} }), {
    instanceOf: MeshError,
  });
  t.regex(error?.message ?? '', /metadata\.namespace.*metadata\.uid/);
});

test('a certificate lives as long as asked, by default, and not longer than allowed', (t) => {
  const limits = { defaultMs: 86_400_000, maxMs: 100_000_000 };
  t.deepEqual(decideLifetime(60, limits), { lifetimeMs: 60_000 });
  t.deepEqual(decideLifetime(0, limits), { lifetimeMs: 86_400_000 });
  t.deepEqual(decideLifetime(-5, limits), { lifetimeMs: 86_400_000 });
  t.deepEqual(decideLifetime(100_000, limits), { lifetimeMs: 100_000_000 });
  t.deepEqual(decideLifetime(100_001, limits), { tooLongMs: 100_001_000 });
});

test('the gate bounds concurrency and rate', async (t) => {
  const clock = new FakeClock();
  const gate = new Gate({ concurrent: 3, perSecond: 5 }, clock);
  t.deepEqual([gate.enter(), gate.enter(), gate.enter(), gate.enter()], [true, true, true, false]);
  gate.leave();
  t.true(gate.enter());
  for (let count = 0; count < 3; count += 1) gate.leave();
  let passed = 0;
  for (let count = 0; count < 20; count += 1) {
    if (!gate.enter()) continue;
    passed += 1;
    gate.leave();
  }
  t.is(passed, 6, 'two seconds of burst, less the four before');
  await clock.advance(1_000);
  passed = 0;
  for (let count = 0; count < 20; count += 1) {
    if (!gate.enter()) continue;
    passed += 1;
    gate.leave();
  }
  t.is(passed, 5);
});

test('requests of nobody known use up no rate', (t) => {
  const gate = new Gate({ concurrent: 3, perSecond: 2 }, new FakeClock());
  for (let count = 0; count < 50; count += 1) {
    t.true(gate.enter());
    gate.leave({ uncounted: true });
  }
});

test('one caller that asks too much leaves the others their rate', async (t) => {
  const clock = new FakeClock();
  const rates = new CallerRates({ perSecond: 5, callers: 2 }, clock);
  for (let count = 0; count < 10; count += 1) t.true(rates.allows('node-1'));
  t.false(rates.allows('node-1'));
  t.true(rates.allows('node-2'));
  await clock.advance(1_000);
  t.true(rates.allows('node-1'));
  // The least active node is forgotten, the busy one is not.
  for (let count = 0; count < 4; count += 1) t.true(rates.allows('node-1'));
  t.true(rates.allows('node-3'));
  t.false(rates.allows('node-1'));
});

test('the configuration names every problem', (t) => {
  const error = t.throws(
    () =>
      caConfig.parse({
        WEFT_CA_SERVING_NAMES: 'istiod=x',
        ISTIOD_CUSTOM_HOST: 'bad name',
        CA_TRUSTED_NODE_ACCOUNTS: 'ztunnel',
        MAX_WORKLOAD_CERT_TTL: 'long',
      }),
    { instanceOf: MeshError },
  );
  t.is(error?.code, 'CONFIG_INVALID');
  for (const name of ['SERVING_NAMES', 'ISTIOD_CUSTOM_HOST', 'NODE_ACCOUNTS', 'CERT_TTL']) {
    t.true(error?.message.includes(name), name);
  }
  t.throws(() => caConfig.parse({}), { message: /WEFT_TOKEN_JWKS_PATH is required/ });
  t.throws(() => caConfig.parse({ WEFT_SOURCE: 'kubernetes', WEFT_TOKEN_JWKS_PATH: 'x' }), {
    message: /WEFT_TOKEN_JWKS_PATH cannot be set with WEFT_SOURCE=kubernetes/,
  });
  t.is(caConfig.parse({ WEFT_SOURCE: 'kubernetes' }).token.jwksPath, null);
  t.throws(() => caConfig.parse({ WEFT_TOKEN_JWKS_PATH: 'x', MAX_WORKLOAD_CERT_TTL: '1h' }), {
    message: /DEFAULT_WORKLOAD_CERT_TTL is longer/,
  });
});

test("the defaults are upstream's", (t) => {
  const config = caConfig.parse({ WEFT_TOKEN_JWKS_PATH: '/jwks.json' });
  t.like(config, {
    trustDomain: 'cluster.local',
    trustedNodeAccounts: ['istio-system/ztunnel'],
    defaultLifetimeMs: 86_400_000,
    maxLifetimeMs: 90 * 86_400_000,
    listen: { kind: 'tcp', host: '::', port: 15_012 },
  });
  t.deepEqual(config.token.audiences, ['istio-ca']);
});
