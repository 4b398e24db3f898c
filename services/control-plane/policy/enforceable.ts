/**
 * The part of a policy that can be enforced. An API server may hold what `weft apply` refuses. Whatever cannot be read must not
 * widen access: an ALLOW loses the whole rule, a DENY the clause, so that it denies more. Pure.
 */
import type { AuthorizationPolicy } from '../manifests/kinds.ts';
import { validateObject } from '../manifests/validate.ts';
import type { FieldProblem } from '../manifests/validate.ts';

/** A policy without what cannot be read; null when more than its rules is affected. */
export interface Enforceable {
  readonly policy: AuthorizationPolicy | null;
  readonly problems: readonly FieldProblem[];
}

type Rules = NonNullable<AuthorizationPolicy['spec']['rules']>;
type Rule = Rules[number];

const IN_RULE = /^spec\.rules\[(\d+)\](?:\.(from|to|when)\b(?:\[(\d+)\])?)?/;
/** A field of the spec that nobody knows conditions nothing that is known. */
const UNKNOWN_OF_SPEC = /^spec\.[^.[]+$/;

/** The enforceable part of a policy. */
export function enforceable(given: AuthorizationPolicy): Enforceable {
  const { object, problems: all } = validateObject('AuthorizationPolicy', given);
  if (object?.kind === 'AuthorizationPolicy') return { policy: object, problems: [] };
  const problems = all.filter(({ path }) => path === 'spec' || path.startsWith('spec.'));
  const others = problems.filter(
    ({ path, reason }) =>
      !IN_RULE.test(path) && !(reason === 'unknown field' && UNKNOWN_OF_SPEC.test(path)),
  );
  if (others.length > 0) return { policy: null, problems };
  const rules = given.spec.rules ?? [];
  const faults = problems.map(({ path }) => IN_RULE.exec(path)).filter((match) => match !== null);
  const kept = rules.flatMap((rule, index): Rule[] => {
    const own = faults.filter((match) => Number(match[1]) === index);
    if (own.length === 0) return [rule];
    return (given.spec.action ?? 'ALLOW') === 'DENY' ? [withoutClauses(rule, own)] : [];
  });
  return { policy: { ...given, spec: { ...given.spec, rules: kept } }, problems };
}

/** The rule without the clauses that hold a fault; without any clause when the fault is in none of them. */
function withoutClauses(rule: Rule, faults: readonly RegExpExecArray[]): Rule {
  if (faults.some((match) => match[2] === undefined)) return {};
  const broken = new Set(faults.map((match) => match[2]));
  const conditions = new Set(
    faults.filter((match) => match[2] === 'when').map((match) => Number(match[3] ?? -1)),
  );
  const when = conditions.has(-1)
    ? []
    : (rule.when ?? []).filter((_condition, index) => !conditions.has(index));
  return {
    ...(rule.from === undefined || broken.has('from') ? {} : { from: rule.from }),
    ...(rule.to === undefined || broken.has('to') ? {} : { to: rule.to }),
    ...(when.length === 0 ? {} : { when }),
  };
}
