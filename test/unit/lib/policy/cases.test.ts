/** Tests the 48 cases of docs/spec/policy.md §8 as amended by docs/decisions/policy-fails-closed.md and strict-policy-decoding.md. */
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { istio } from '#proto/resources.js';
import { judge } from '../../../../lib/policy/evaluate.ts';
import { compileProgram } from '../../../../lib/policy/compile.ts';
import { PolicyStore } from '../../../../lib/policy/policy-store.ts';
import type { Authorization, ConnectionFacts } from '../../../../lib/policy/model.ts';
import { parseAuthority, resolveUpstream } from '../../../../lib/state/inbound.ts';
import {
  decodeAuthorization,
  encodeAuthorization,
} from '../../../../lib/xds/resources/authorization.ts';
import {
  connection,
  exact,
  judgeBy,
  policy,
  prefix,
  presence,
  range,
  suffix,
} from '../../../support/policy-kit.ts';
import { service, viewOf, workload } from '../../../support/mesh-kit.ts';

const X = 'cluster.local/ns/a/sa/x';
const DENY_PLAINTEXT = policy('DENY', [[[{ notPrincipals: [presence] }]]]);
const DENY_PLAINTEXT_BUT_9090 = policy('DENY', [
  [[{ notPrincipals: [presence] }], [{ notDestinationPorts: [9090] }]],
]);
const MATCHES_A = [[[{ principals: [exact(X)] }]]];
const MATCHES_NOBODY = [[[{ principals: [exact('nobody')] }]]];
const FROM_10_1 = policy('ALLOW', [[[{ sourceIps: [range('10.1.0.0/16')] }]]]);

interface Case {
  readonly number: number;
  readonly what: string;
  readonly policies: readonly Authorization[];
  readonly facts: ConnectionFacts;
  readonly allowed: boolean;
  readonly dryRun?: number;
}

const A = connection('A');
const B = connection('B');
const P = connection('P');

const allow = (rules: Parameters<typeof policy>[1]): Authorization[] => [policy('ALLOW', rules)];
const deny = (rules: Parameters<typeof policy>[1]): Authorization[] => [policy('DENY', rules)];

const cases: Case[] = [
  { number: 1, what: 'no policy', policies: [], facts: P, allowed: true },
  { number: 2, what: 'ALLOW, no rules', policies: allow([]), facts: A, allowed: false },
  { number: 3, what: 'DENY, no rules', policies: deny([]), facts: A, allowed: true },
  {
    number: 4,
    what: 'ALLOW, rule without clauses',
    policies: allow([[]]),
    facts: P,
    allowed: true,
  },
  { number: 5, what: 'DENY, rule without clauses', policies: deny([[]]), facts: A, allowed: false },
  {
    number: 6,
    what: 'ALLOW, clause without matches',
    policies: allow([[[]]]),
    facts: P,
    allowed: true,
  },
  {
    number: 7,
    what: 'ALLOW, one empty match',
    policies: allow([[[{}]]]),
    facts: A,
    allowed: false,
  },
  { number: 8, what: 'DENY, one empty match', policies: deny([[[{}]]]), facts: A, allowed: true },
  {
    number: 9,
    what: 'ALLOW, empty match or port',
    policies: allow([[[{}, { destinationPorts: [8080] }]]]),
    facts: P,
    allowed: true,
  },
  { number: 10, what: 'principal exact', policies: allow(MATCHES_A), facts: A, allowed: true },
  {
    number: 11,
    what: 'principal exact, other trust domain',
    policies: allow(MATCHES_A),
    facts: B,
    allowed: false,
  },
  {
    number: 12,
    what: 'principal with spiffe scheme',
    policies: allow([[[{ principals: [exact(`spiffe://${X}`)] }]]]),
    facts: A,
    allowed: false,
  },
  {
    number: 13,
    what: 'principal presence, plaintext',
    policies: allow([[[{ principals: [presence] }]]]),
    facts: P,
    allowed: false,
  },
  {
    number: 14,
    what: 'principal empty suffix, plaintext',
    policies: allow([[[{ principals: [suffix('')] }]]]),
    facts: P,
    allowed: false,
  },
  {
    number: 15,
    what: 'DENY not principals presence, plaintext',
    policies: [DENY_PLAINTEXT],
    facts: P,
    allowed: false,
  },
  {
    number: 16,
    what: 'DENY not principals presence, mTLS',
    policies: [DENY_PLAINTEXT],
    facts: A,
    allowed: true,
  },
  {
    number: 17,
    what: 'STRICT but 9090, to 9090',
    policies: [DENY_PLAINTEXT_BUT_9090],
    facts: connection('P', { destinationPort: 9090 }),
    allowed: true,
  },
  {
    number: 18,
    what: 'STRICT but 9090, to 8080',
    policies: [DENY_PLAINTEXT_BUT_9090],
    facts: P,
    allowed: false,
  },
  {
    number: 19,
    what: 'ALLOW not principal, plaintext',
    policies: allow([[[{ notPrincipals: [exact(X)] }]]]),
    facts: P,
    allowed: true,
  },
  {
    number: 20,
    what: 'namespace exact empty, plaintext',
    policies: allow([[[{ namespaces: [exact('')] }]]]),
    facts: P,
    allowed: true,
  },
  {
    number: 21,
    what: 'namespace presence, plaintext',
    policies: allow([[[{ namespaces: [presence] }]]]),
    facts: P,
    allowed: false,
  },
  {
    number: 22,
    what: 'principal prefix',
    policies: allow([[[{ principals: [prefix('cluster.local/ns/a/')] }]]]),
    facts: A,
    allowed: true,
  },
  {
    number: 23,
    what: 'principal suffix',
    policies: allow([[[{ principals: [suffix('/sa/x')] }]]]),
    facts: B,
    allowed: true,
  },
  {
    number: 24,
    what: 'service account, trust domain ignored',
    policies: allow([[[{ serviceAccounts: [{ namespace: 'a', serviceAccount: 'x' }] }]]]),
    facts: B,
    allowed: true,
  },
  {
    number: 25,
    what: 'not service account, plaintext',
    policies: allow([[[{ notServiceAccounts: [{ namespace: 'a', serviceAccount: 'x' }] }]]]),
    facts: P,
    allowed: true,
  },
  { number: 26, what: 'source range', policies: [FROM_10_1], facts: A, allowed: true },
  {
    number: 27,
    what: 'source range, relayed by a waypoint',
    policies: [FROM_10_1],
    facts: connection('A', { sourceIp: '192.168.0.5' }),
    allowed: false,
  },
  {
    number: 28,
    what: 'AND inside a match',
    policies: allow([[[{ sourceIps: [range('10.1.2.3/32')], destinationPorts: [9090] }]]]),
    facts: A,
    allowed: false,
  },
  {
    number: 29,
    what: 'OR inside a clause',
    policies: allow([[[{ namespaces: [exact('b')] }, { destinationPorts: [8080] }]]]),
    facts: A,
    allowed: true,
  },
  {
    number: 30,
    what: 'AND across clauses',
    policies: allow([[[{ namespaces: [exact('b')] }], [{ destinationPorts: [8080] }]]]),
    facts: A,
    allowed: false,
  },
  {
    number: 31,
    what: 'OR across rules',
    policies: allow([[[{ namespaces: [exact('b')] }]], [[{ destinationPorts: [8080] }]]]),
    facts: A,
    allowed: true,
  },
  {
    number: 32,
    what: 'DENY before ALLOW',
    policies: [policy('ALLOW', MATCHES_A), policy('DENY', MATCHES_A)],
    facts: A,
    allowed: false,
  },
  {
    number: 33,
    what: 'dry-run DENY',
    policies: [policy('DENY', MATCHES_A, { dryRun: true })],
    facts: A,
    allowed: true,
    dryRun: 1,
  },
  {
    number: 34,
    what: 'only a dry-run ALLOW, not matching',
    policies: [policy('ALLOW', MATCHES_NOBODY, { dryRun: true })],
    facts: A,
    allowed: true,
    dryRun: 1,
  },
  {
    number: 35,
    what: 'dry-run ALLOW matching, ALLOW not',
    policies: [policy('ALLOW', MATCHES_A, { dryRun: true }), policy('ALLOW', MATCHES_NOBODY)],
    facts: A,
    allowed: false,
  },
  {
    number: 45,
    what: 'mapped range, IPv4 peer',
    policies: allow([[[{ sourceIps: [range('::ffff:10.0.0.0/104')] }]]]),
    facts: A,
    allowed: false,
  },
  {
    number: 46,
    what: 'range of length 0',
    policies: allow([[[{ sourceIps: [range('10.0.0.0/0')] }]]]),
    facts: A,
    allowed: true,
  },
  {
    number: 47,
    what: 'host bits of a range',
    policies: allow([[[{ sourceIps: [range('10.1.2.9/24')] }]]]),
    facts: A,
    allowed: true,
  },
];

for (const { number, what, policies, facts, allowed, dryRun } of cases) {
  // spec: policy.md §8
  test(`case ${number}: ${what}`, (t) => {
    const verdict = judgeBy(policies, facts);
    t.is(verdict.allowed, allowed);
    t.is(verdict.dryRun.length, dryRun ?? 0);
  });
}

const W = { uid: 'c//Pod/app/w', namespace: 'app', authorizationPolicies: [] as readonly string[] };

/** Returns the verdict on A's connection to W with these policies in the store, after any wait. */
function inStore(
  t: ExecutionContext,
  policies: Readonly<Record<string, Authorization>>,
  listed: readonly string[] = [],
): ReturnType<typeof judge> {
  const store = new PolicyStore(decodeAuthorization, { unknownReference: 'deny' });
  for (const [key, item] of Object.entries(policies)) {
    t.is(store.apply(key, encodeAuthorization(item)).error, null);
  }
  const subject = { ...W, authorizationPolicies: listed };
  const { policy: effective, policies: bound } = store.effectiveFor(subject, 0);
  return judge(effective, compileProgram(effective.setId, bound), A, 'deny');
}

// spec: policy.md §2
test('case 36: WORKLOAD_SELECTOR DENY-all that W does not list', (t) => {
  const all = { 'app/all': policy('DENY', [[]], { scope: 'WORKLOAD_SELECTOR' }) };
  t.true(inStore(t, all).allowed);
  t.false(inStore(t, all, ['app/all']).allowed);
});

// spec: policy.md §2
test('case 37 amended: an unknown listed policy waits 5 s, then denies and names the key', (t) => {
  const store = new PolicyStore(decodeAuthorization, { unknownReference: 'deny' });
  const subject = { ...W, authorizationPolicies: ['app/missing'] };
  const program = compileProgram('none', []);
  const first = store.effectiveFor(subject, 1_000);
  t.like(first.policy, { pending: true, unknown: ['app/missing'], denyAll: null });
  t.is(first.pendingUntilMs, 6_000);
  t.true(judge(first.policy, program, A, 'deny').allowed, 'open connections are left alone');
  const before = store.effectiveFor(subject, 5_999);
  t.true(before.policy.pending);
  const after = store.effectiveFor(subject, 6_000);
  t.like(after, { policy: { pending: false, unknown: ['app/missing'] }, pendingUntilMs: null });
  t.like(judge(after.policy, program, A, 'deny'), {
    allowed: false,
    reason: 'unknown-reference',
    policy: 'app/missing',
  });
  t.true(judge(after.policy, program, A, 'ignore').allowed);
});

// spec: policy.md §2
test('case 38: GLOBAL DENY-all of another namespace', (t) => {
  const all = policy('DENY', [[]], { scope: 'GLOBAL', namespace: 'istio-system' });
  t.like(inStore(t, { 'istio-system/all': all }), {
    allowed: false,
    reason: 'denied',
    policy: 'istio-system/all',
    rule: 0,
  });
});

// spec: policy.md §2
test('case 39: NAMESPACE DENY-all of another namespace', (t) => {
  t.true(inStore(t, { 'other/all': policy('DENY', [[]], { namespace: 'other' }) }).allowed);
});

const ALLOW_80 = [policy('ALLOW', [[[{ destinationPorts: [80] }]]])];

/** Returns the facts that policies see for a CONNECT by `authority` to the pod. */
function factsFor(t: ExecutionContext, authority: string, pod: ReturnType<typeof workload>) {
  const svc = service({ namespace: 'app', hostname: 'svc', ports: { 80: 8080 } });
  const parsed = parseAuthority(authority);
  if (parsed === null) return t.fail('the authority parses');
  const upstream = resolveUpstream(
    viewOf([svc, pod]),
    { authority: parsed, localIp: '10.0.0.9', workload: pod },
    [svc],
    { illegalPorts: new Set(), localhostAppTunnel: true },
  );
  if (upstream.kind !== 'upstream') return t.fail('the destination resolves');
  const { ip, port } = upstream.destination;
  return connection('A', { destinationIp: ip, destinationPort: port });
}

const pod = workload({ uid: 'c//Pod/app/w', namespace: 'app', addresses: ['10.0.0.9'] });

// spec: policy.md §4
test('case 40: the target port is matched, not the port of the authority', (t) => {
  const facts = factsFor(t, 'svc:80', pod);
  t.is(facts.destinationPort, 8080);
  t.false(judgeBy(ALLOW_80, facts).allowed);
});

test('case 41: the port of an application tunnel is matched', (t) => {
  const tunnelled = { ...pod, applicationTunnel: { protocol: 'NONE', port: 15088 } } as const;
  const facts = factsFor(t, '10.0.0.9:80', tunnelled);
  t.is(facts.destinationPort, 15088);
  t.false(judgeBy(ALLOW_80, facts).allowed);
});

// spec: policy.md §4
test('case 48: behind a PROXY tunnel over loopback the pod address is matched', (t) => {
  const proxied = { ...pod, applicationTunnel: { protocol: 'PROXY', port: 0 } } as const;
  const facts = factsFor(t, '10.0.0.9:8080', proxied);
  t.is(facts.destinationIp, '10.0.0.9');
  const allowPod = policy('ALLOW', [[[{ destinationIps: [range('10.0.0.9/32')] }]]]);
  t.true(judgeBy([allowPod], facts).allowed);
});

const { Action, Scope } = istio.security;
const undecodable: [number, string, istio.security.Match.$Properties][] = [
  [42, 'a port above 65535', { destinationPorts: [65_616] }],
  [43, 'a 5-byte address', { sourceIps: [{ address: new Uint8Array(5), length: 8 }] }],
  [
    44,
    'a 5-byte address beside a port',
    { sourceIps: [{ address: new Uint8Array(5), length: 8 }], destinationPorts: [8080] },
  ],
];

for (const [number, what, wireMatch] of undecodable) {
  const bytes = istio.security.Authorization.encode({
    name: 'bad',
    namespace: 'app',
    scope: Scope.NAMESPACE,
    action: Action.ALLOW,
    rules: [{ clauses: [{ matches: [wireMatch] }] }],
  }).finish();

  // spec: policy.md §1
  test(`case ${number} amended: ${what} is refused and denies the namespace`, (t) => {
    const store = new PolicyStore(decodeAuthorization, { unknownReference: 'deny' });
    const change = store.apply('app/bad', bytes);
    t.is(change.error?.code, 'XDS_RESOURCE');
    t.true(change.changed);
    const { policy: effective } = store.effectiveFor(W, 0);
    t.like(judge(effective, compileProgram('none', []), P, 'ignore'), {
      allowed: false,
      reason: 'undecodable-policy',
      policy: 'app/bad',
    });
    t.is(store.effectiveFor({ ...W, namespace: 'other' }, 0).policy.denyAll, null);
  });

  test(`case ${number} amended: ${what} leaves the last good version in force`, (t) => {
    const store = new PolicyStore(decodeAuthorization, { unknownReference: 'deny' });
    store.apply('app/bad', encodeAuthorization(policy('DENY', [[]])));
    const before = store.effectiveFor(W, 0);
    t.is(store.apply('app/bad', bytes).error?.code, 'XDS_RESOURCE');
    t.deepEqual(store.effectiveFor(W, 0), before);
  });
}
