/** The compiled program against the rules of docs/spec/policy.md §3 to §5 written out plainly. */
import { BlockList, isIPv4 } from 'node:net';
import test from 'ava';
import * as fc from 'fast-check';
import { compileProgram } from '../../lib/policy/compile.ts';
import { evaluate } from '../../lib/policy/evaluate.ts';
import type {
  AddressRange,
  Authorization,
  ConnectionFacts,
  Match,
  StringMatch,
} from '../../lib/policy/model.ts';
import { decodeProgram, encodeProgram } from '../../lib/policy/program-codec.ts';
import { matchFixture as match } from '../support/model-fixtures.ts';

const word = fc.constantFrom('', 'a', 'b', 'x', 'a/sa/x', 'cluster.local/ns/a/sa/x', '/sa/x');
const stringMatch: fc.Arbitrary<StringMatch> = fc.oneof(
  fc.record({
    kind: fc.constantFrom('exact' as const, 'prefix' as const, 'suffix' as const),
    value: word,
  }),
  fc.constant({ kind: 'presence' as const }),
);
const address = fc.constantFrom(
  '10.1.2.3',
  '10.1.2.4',
  '10.9.0.1',
  '192.168.0.5',
  'fd00::1',
  'fd00:1::2',
);
const range: fc.Arbitrary<AddressRange> = address.chain((ip) =>
  fc.record({
    address: fc.constant(ip),
    length: fc.integer({ min: 0, max: isIPv4(ip) ? 32 : 128 }),
  }),
);
const account = fc.record({
  namespace: fc.constantFrom('a', 'b'),
  serviceAccount: fc.constantFrom('x', 'y'),
});
const port = fc.constantFrom(80, 443, 8080);
const few = <T>(item: fc.Arbitrary<T>): fc.Arbitrary<T[]> =>
  fc.oneof(
    { weight: 3, arbitrary: fc.constant<T[]>([]) },
    { weight: 1, arbitrary: fc.array(item, { minLength: 1, maxLength: 3 }) },
  );
const matchArbitrary: fc.Arbitrary<Match> = fc
  .record({
    namespaces: few(stringMatch),
    notNamespaces: few(stringMatch),
    serviceAccounts: few(account),
    notServiceAccounts: few(account),
    principals: few(stringMatch),
    notPrincipals: few(stringMatch),
    sourceIps: few(range),
    notSourceIps: few(range),
    destinationIps: few(range),
    notDestinationIps: few(range),
    destinationPorts: few(port),
    notDestinationPorts: few(port),
  })
  .map(match);
const policyArbitrary: fc.Arbitrary<Authorization> = fc.record({
  name: fc.constant('p'),
  namespace: fc.constant('app'),
  scope: fc.constant('NAMESPACE' as const),
  action: fc.constantFrom('ALLOW' as const, 'DENY' as const),
  dryRun: fc.boolean(),
  rules: fc.array(
    fc.record({
      clauses: fc.array(fc.record({ matches: fc.array(matchArbitrary, { maxLength: 3 }) }), {
        maxLength: 3,
      }),
    }),
    { maxLength: 3 },
  ),
});
const facts: fc.Arbitrary<ConnectionFacts> = fc.record({
  sourceIp: address,
  sourceIdentity: fc.constantFrom(
    null,
    'spiffe://cluster.local/ns/a/sa/x',
    'spiffe://other.td/ns/a/sa/x',
    'spiffe://cluster.local/ns/b/sa/y',
  ),
  destinationIp: address,
  destinationPort: port,
});

const hitsString = (list: readonly StringMatch[], value: string): boolean =>
  list.some((item) => {
    switch (item.kind) {
      case 'exact':
        return value === item.value;
      case 'prefix':
        return value.startsWith(item.value);
      case 'suffix':
        return value.endsWith(item.value);
      case 'presence':
        return value.length > 0;
    }
  });

function hitsRange(list: readonly AddressRange[], ip: string): boolean {
  return list.some(({ address: base, length }) => {
    if (isIPv4(base) !== isIPv4(ip)) return false;
    const family = isIPv4(ip) ? 'ipv4' : 'ipv6';
    if (length === 0) return true;
    const block = new BlockList();
    block.addSubnet(base, length, family);
    return block.check(ip, family);
  });
}

function naiveMatch(item: Match, connection: ConnectionFacts): boolean {
  const lists = Object.values(item) as (readonly unknown[])[];
  if (lists.every((list) => list.length === 0)) return false;
  const identity = connection.sourceIdentity;
  const [, , , , namespace = '', , serviceAccount = ''] = (identity ?? '').split('/');
  const holds = <T>(yes: readonly T[], no: readonly T[], hit: (list: readonly T[]) => boolean) =>
    (yes.length === 0 || hit(yes)) && (no.length === 0 || !hit(no));
  const accountHit = (list: Match['serviceAccounts']): boolean =>
    identity !== null &&
    list.some((entry) => entry.namespace === namespace && entry.serviceAccount === serviceAccount);
  return (
    holds(item.namespaces, item.notNamespaces, (list) =>
      hitsString(list, identity === null ? '' : namespace),
    ) &&
    holds(item.serviceAccounts, item.notServiceAccounts, accountHit) &&
    holds(item.principals, item.notPrincipals, (list) =>
      identity === null ? false : hitsString(list, identity.replace('spiffe://', '')),
    ) &&
    holds(item.sourceIps, item.notSourceIps, (list) => hitsRange(list, connection.sourceIp)) &&
    holds(item.destinationIps, item.notDestinationIps, (list) =>
      hitsRange(list, connection.destinationIp),
    ) &&
    holds(item.destinationPorts, item.notDestinationPorts, (list) =>
      list.includes(connection.destinationPort),
    )
  );
}

const naivePolicy = (policy: Authorization, connection: ConnectionFacts): boolean =>
  policy.rules.some((rule) =>
    rule.clauses.every(
      (clause) =>
        clause.matches.length === 0 || clause.matches.some((item) => naiveMatch(item, connection)),
    ),
  );

function naiveAllowed(policies: readonly Authorization[], connection: ConnectionFacts): boolean {
  const enforced = policies.filter(({ dryRun }) => !dryRun);
  const matching = enforced.filter((policy) => naivePolicy(policy, connection));
  if (matching.some(({ action }) => action === 'DENY')) return false;
  const allows = enforced.some(({ action }) => action === 'ALLOW');
  return !allows || matching.some(({ action }) => action === 'ALLOW');
}

const named = (policies: readonly Authorization[]) =>
  policies.map((policy, index) => ({ key: `app/p-${index}`, policy }));

// spec: policy.md §3, spec: policy.md §4, spec: policy.md §5
test('a program decides as the rules written out', (t) => {
  let denied = 0;
  fc.assert(
    fc.property(
      fc.array(policyArbitrary, { maxLength: 4 }),
      fc.array(facts, { maxLength: 6 }),
      (policies, connections) => {
        const program = compileProgram('s', named(policies));
        return connections.every((connection) => {
          const verdict = evaluate(program, connection);
          if (!verdict.allowed) denied += 1;
          return verdict.allowed === naiveAllowed(policies, connection);
        });
      },
    ),
    { numRuns: 3_000 },
  );
  t.true(denied > 100, 'both outcomes are met');
});

test('the policy and rule a verdict names do match', (t) => {
  fc.assert(
    fc.property(fc.array(policyArbitrary, { maxLength: 4 }), facts, (policies, connection) => {
      const verdict = evaluate(compileProgram('s', named(policies)), connection);
      if (verdict.policy === null) return verdict.rule === null;
      const policy = policies[Number(verdict.policy.slice('app/p-'.length))];
      const rule = policy?.rules[verdict.rule ?? -1];
      return (
        policy !== undefined &&
        rule !== undefined &&
        !policy.dryRun &&
        policy.action === (verdict.allowed ? 'ALLOW' : 'DENY') &&
        naivePolicy({ ...policy, rules: [rule] }, connection)
      );
    }),
    { numRuns: 1_000 },
  );
  t.pass();
});

test('neither the order of policies nor the way through Redis changes a program', (t) => {
  fc.assert(
    fc.property(fc.array(policyArbitrary, { maxLength: 5 }), (policies) => {
      const program = compileProgram('s', named(policies));
      t.deepEqual(compileProgram('s', named(policies).reverse()), program);
      t.deepEqual(decodeProgram('s', encodeProgram(program)), program);
    }),
    { numRuns: 100 },
  );
});
