/** Policies that an API server holds although they cannot be read: spec: istiod-ambient.md §2.1, spec: istiod-ambient.md §2.2. */
import test from 'ava';
import { reduce } from '../../../../services/control-plane/manifests/reduce.ts';
import { convertPolicy } from '../../../../services/control-plane/policy/authorization-policy.ts';
import type { ConvertedPolicy } from '../../../../services/control-plane/policy/authorization-policy.ts';

function converted(spec: object): ConvertedPolicy {
  const policy = reduce('AuthorizationPolicy', {
    metadata: { name: 'p', namespace: 'demo' },
    spec,
  });
  if (policy === null) throw new Error('the policy has a name');
  return convertPolicy(policy, { rootNamespace: 'istio-system', dryRun: false });
}

const GOOD = { from: [{ source: { namespaces: ['a'] } }] };

test('an ALLOW loses the rule that cannot be read', (t) => {
  for (const bad of [
    { from: [{ source: { namespaces: ['a'], ipBlocks: ['x'] } }] },
    { from: [{ source: { namespaces: ['a'], newField: ['x'] } }] },
    { to: [{ operation: { ports: ['80', 'http'] } }] },
    { from: GOOD.from, when: [{ key: 'unknown', values: ['x'] }] },
    { from: 'text' },
    'text',
  ]) {
    const { authorization, status } = converted({ action: 'ALLOW', rules: [bad, GOOD] });
    t.is(authorization?.rules.length, 1);
    t.deepEqual(authorization?.rules[0]?.clauses[0]?.matches[0]?.namespaces, [
      { kind: 'exact', value: 'a' },
    ]);
    t.is(status.reason, 'PartiallyInvalid');
    t.regex(status.message, /spec\.rules\[0\]/);
  }
});

test('a DENY loses only the clause that cannot be read, so that it denies more', (t) => {
  const { authorization } = converted({
    action: 'DENY',
    rules: [{ from: GOOD.from, to: [{ operation: { ports: ['http'] } }] }],
  });
  t.is(authorization?.rules.length, 1);
  t.is(authorization?.rules[0]?.clauses.length, 1);
  t.deepEqual(authorization?.rules[0]?.clauses[0]?.matches[0]?.namespaces, [
    { kind: 'exact', value: 'a' },
  ]);
  const when = converted({
    action: 'DENY',
    rules: [
      {
        when: [
          { key: 'unknown', values: ['x'] },
          { key: 'source.namespace', values: ['a'] },
        ],
      },
    ],
  });
  t.is(when.authorization?.rules[0]?.clauses.length, 1);
  const whole = converted({ action: 'DENY', rules: [{ unknown: true }] });
  t.deepEqual(whole.authorization?.rules, [{ clauses: [] }]);
});

test('a policy whose action or selector cannot be read denies everything in its namespace', (t) => {
  for (const spec of [
    { action: 'MAYBE' },
    { selector: { matchLabels: 'x' } },
    { rules: 'text' },
    { targetRefs: [7] },
  ]) {
    const { authorization, status, selector } = converted(spec);
    t.is(authorization?.action, 'DENY');
    t.is(authorization?.scope, 'NAMESPACE');
    t.deepEqual(authorization?.rules, [{ clauses: [] }]);
    t.is(selector, null);
    t.is(status.reason, 'Invalid');
  }
});

test('an unknown field beside the rules takes nothing away', (t) => {
  const { authorization, status } = converted({ rules: [GOOD], newField: 1 });
  t.is(authorization?.rules.length, 1);
  t.is(status.reason, 'PartiallyInvalid');
  t.regex(status.message, /spec\.newField: unknown field/);
});
