/** Policies → decision program. Pure; the evaluator and a node-proxy without an evaluator run the same code. */
import { compareText } from '../collections/compare.ts';
import type { CompiledPolicy, CompiledRule, Match, PolicyProgram } from './model.ts';
import type { NamedPolicy } from './named-policy.ts';

/** A compiled policy with what decides its place in a program. */
export interface CompiledPart extends CompiledPolicy {
  readonly action: 'ALLOW' | 'DENY';
  readonly dryRun: boolean;
}

/**
 * Compiles the policies of one set. Input order does not matter; a key may occur once. Empty matches are
 * dropped, as they never match (docs/spec/policy.md §4); a rule keeps its index and a clause its place.
 */
export function compileProgram(setId: string, policies: readonly NamedPolicy[]): PolicyProgram {
  return assembleProgram(setId, policies.map(compilePolicy));
}

/** Compiles one policy of a set: {@link compileProgram} in steps, for big sets. */
export function compilePolicy({ key, policy }: NamedPolicy): CompiledPart {
  const { action, dryRun } = policy;
  return { key, action, dryRun, rules: policy.rules.map(compileRule) };
}

/** Puts compiled policies in evaluation order. */
export function assembleProgram(setId: string, parts: readonly CompiledPart[]): PolicyProgram {
  const sorted = parts.toSorted((left, right) => compareText(left.key, right.key));
  const list = (action: 'ALLOW' | 'DENY', dryRun: boolean): CompiledPolicy[] =>
    sorted
      .filter((part) => part.action === action && part.dryRun === dryRun)
      .map(({ key, rules }) => ({ key, rules }));
  return {
    version: 1,
    setId,
    dryRunDeny: list('DENY', true),
    deny: list('DENY', false),
    dryRunAllow: list('ALLOW', true),
    allow: list('ALLOW', false),
  };
}

/** Number of match conditions a set holds: the measure of how big its program is. */
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
