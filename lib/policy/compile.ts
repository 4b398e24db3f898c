/** Policies → decision program. Pure; the evaluator and a node-proxy without an evaluator run the same code. */
import type { CompiledPolicy, CompiledRule, Match, PolicyProgram } from './model.ts';
import type { NamedPolicy } from './named-policy.ts';

/**
 * Compiles the policies of one set. Input order does not matter; a key may occur once. Empty matches are
 * dropped, as they never match (spec/policy.md §4); a rule keeps its index and a clause its place.
 */
export function compileProgram(setId: string, policies: readonly NamedPolicy[]): PolicyProgram {
  const sorted = policies.toSorted((left, right) =>
    left.key < right.key ? -1 : left.key > right.key ? 1 : 0,
  );
  const part = (action: 'ALLOW' | 'DENY', dryRun: boolean): CompiledPolicy[] =>
    sorted
      .filter(({ policy }) => policy.action === action && policy.dryRun === dryRun)
      .map(compilePolicy);
  return {
    version: 1,
    setId,
    dryRunDeny: part('DENY', true),
    deny: part('DENY', false),
    dryRunAllow: part('ALLOW', true),
    allow: part('ALLOW', false),
  };
}

/** Number of match conditions a set holds: the measure of how long compiling and evaluating it takes. */
export function programWeight(policies: readonly NamedPolicy[]): number {
  let weight = 0;
  for (const { policy } of policies) {
    for (const rule of policy.rules) {
      for (const clause of rule.clauses) {
        for (const match of clause.matches) weight += 1 + conditionCount(match);
      }
    }
  }
  return weight;
}

function compilePolicy({ key, policy }: NamedPolicy): CompiledPolicy {
  return { key, rules: policy.rules.map(compileRule) };
}

function compileRule(rule: NamedPolicy['policy']['rules'][number]): CompiledRule {
  return {
    clauses: rule.clauses.map((clause) =>
      clause.matches.length === 0
        ? null
        : clause.matches.filter((match) => conditionCount(match) > 0),
    ),
  };
}

function conditionCount(match: Match): number {
  return (
    match.namespaces.length +
    match.notNamespaces.length +
    match.serviceAccounts.length +
    match.notServiceAccounts.length +
    match.principals.length +
    match.notPrincipals.length +
    match.sourceIps.length +
    match.notSourceIps.length +
    match.destinationIps.length +
    match.notDestinationIps.length +
    match.destinationPorts.length +
    match.notDestinationPorts.length
  );
}
