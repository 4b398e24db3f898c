/** Program × connection → verdict (docs/spec/policy.md §3 and §4). Pure and synchronous, because it runs on the data path. */
import { tryParseSpiffe } from '../net/spiffe.ts';
import { parseIp } from '../net/address.ts';
import { makeMatcher } from './matcher.ts';
import type { Matcher, Subject } from './matcher.ts';
import type {
  CompiledPolicy,
  ConnectionFacts,
  EffectivePolicy,
  PolicyProgram,
  Verdict,
} from './model.ts';

/** A policy ready to be checked; a null clause always holds, an empty one never does. */
interface ReadyPolicy {
  readonly key: string;
  readonly rules: readonly (readonly (readonly Matcher[] | null)[])[];
}

interface ReadyProgram {
  readonly dryRunDeny: readonly ReadyPolicy[];
  readonly deny: readonly ReadyPolicy[];
  readonly dryRunAllow: readonly ReadyPolicy[];
  readonly allow: readonly ReadyPolicy[];
}

const SCHEME = 'spiffe://';
const NO_KEYS: readonly string[] = Object.freeze([]);
const OPEN: Verdict = Object.freeze({
  allowed: true,
  reason: 'no-policies',
  policy: null,
  rule: null,
  dryRun: NO_KEYS,
});

/** Ranges and sets made from a program live as long as the program itself. */
const readyPrograms = new WeakMap<PolicyProgram, ReadyProgram>();

/**
 * Evaluates a program. Addresses in `facts` must be IP addresses in canonical form (ADDRESS_INVALID
 * otherwise). Principal conditions compare the text of an identity that is no SPIFFE id; it has neither namespace nor service
 * account.
 */
export function evaluate(program: PolicyProgram, facts: ConnectionFacts): Verdict {
  const { allow, deny, dryRunAllow, dryRunDeny } = ready(program);
  if (allow.length + deny.length + dryRunAllow.length + dryRunDeny.length === 0) return OPEN;
  const subject = subjectOf(facts);
  const tried = dryRunDeny.length === 0 ? NO_KEYS : matchingKeys(dryRunDeny, subject);
  for (const policy of deny) {
    const rule = matchingRule(policy, subject);
    if (rule !== -1) {
      return { allowed: false, reason: 'denied', policy: policy.key, rule, dryRun: tried };
    }
  }
  if (allow.length === 0) {
    const missed = dryRunAllow.some((policy) => matchingRule(policy, subject) !== -1)
      ? NO_KEYS
      : dryRunAllow.map((policy) => policy.key);
    const dryRun = missed.length === 0 ? tried : [...tried, ...missed];
    return { allowed: true, reason: 'no-policies', policy: null, rule: null, dryRun };
  }
  for (const policy of allow) {
    const rule = matchingRule(policy, subject);
    if (rule !== -1) {
      return { allowed: true, reason: 'allowed', policy: policy.key, rule, dryRun: tried };
    }
  }
  return { allowed: false, reason: 'not-allowed', policy: null, rule: null, dryRun: tried };
}

/**
 * The verdict on a connection to a workload by everything that binds it: the program of its set, an
 * undecodable policy, and references to unknown policies (docs/decisions/policy-fails-closed.md).
 *
 * While `effective.pending` holds, an allowed verdict is preliminary: a new connection waits for the end of
 * `pending`, an open one is left alone. `unknownReference` is WEFT_POLICY_UNKNOWN_REFERENCE.
 */
export function judge(
  effective: EffectivePolicy,
  program: PolicyProgram,
  facts: ConnectionFacts,
  unknownReference: 'deny' | 'ignore',
): Verdict {
  if (effective.denyAll !== null) {
    return {
      allowed: false,
      reason: 'undecodable-policy',
      policy: effective.denyAll,
      rule: null,
      dryRun: NO_KEYS,
    };
  }
  const verdict = evaluate(program, facts);
  if (!verdict.allowed || effective.pending || unknownReference === 'ignore') return verdict;
  const [missing] = effective.unknown;
  if (missing === undefined) return verdict;
  return {
    allowed: false,
    reason: 'unknown-reference',
    policy: missing,
    rule: null,
    dryRun: verdict.dryRun,
  };
}

/** One line that explains a verdict, as access logs and `weft policy explain` show it. */
export function describeVerdict(verdict: Verdict): string {
  const rule = verdict.rule === null ? '' : `, rule ${verdict.rule}`;
  switch (verdict.reason) {
    case 'no-policies':
      return 'allowed: no ALLOW policy applies';
    case 'allowed':
      return `allowed by policy ${verdict.policy ?? ''}${rule}`;
    case 'denied':
      return `explicitly denied by policy ${verdict.policy ?? ''}${rule}`;
    case 'not-allowed':
      return 'denied: ALLOW policies apply and none matched';
    case 'unknown-reference':
      return `denied: the workload lists policy ${verdict.policy ?? ''}, which is not known`;
    case 'undecodable-policy':
      return `denied: policy ${verdict.policy ?? ''} cannot be decoded and there is no earlier version`;
  }
}

function ready(program: PolicyProgram): ReadyProgram {
  const known = readyPrograms.get(program);
  if (known !== undefined) return known;
  const made = {
    dryRunDeny: program.dryRunDeny.map(readyPolicy),
    deny: program.deny.map(readyPolicy),
    dryRunAllow: program.dryRunAllow.map(readyPolicy),
    allow: program.allow.map(readyPolicy),
  };
  readyPrograms.set(program, made);
  return made;
}

function readyPolicy(policy: CompiledPolicy): ReadyPolicy {
  return {
    key: policy.key,
    rules: policy.rules.map((rule) =>
      rule.clauses.map((clause) => (clause === null ? null : clause.map(makeMatcher))),
    ),
  };
}

function subjectOf(facts: ConnectionFacts): Subject {
  const identity = facts.sourceIdentity;
  const parsed = identity === null ? null : tryParseSpiffe(identity);
  return {
    sourceIp: parseIp(facts.sourceIp),
    destinationIp: parseIp(facts.destinationIp),
    destinationPort: facts.destinationPort,
    principal: identity?.startsWith(SCHEME) === true ? identity.slice(SCHEME.length) : identity,
    namespace: parsed?.namespace ?? '',
    serviceAccount: parsed === null ? null : `${parsed.namespace}/${parsed.serviceAccount}`,
  };
}

function matchingKeys(policies: readonly ReadyPolicy[], subject: Subject): readonly string[] {
  return policies
    .filter((policy) => matchingRule(policy, subject) !== -1)
    .map((policy) => policy.key);
}

/** Index of the first rule that matches, -1 when none does. */
function matchingRule(policy: ReadyPolicy, subject: Subject): number {
  let index = 0;
  for (const clauses of policy.rules) {
    if (clausesHold(clauses, subject)) return index;
    index += 1;
  }
  return -1;
}

function clausesHold(clauses: readonly (readonly Matcher[] | null)[], subject: Subject): boolean {
  for (const clause of clauses) {
    if (clause !== null && !clause.some((matcher) => matcher.matches(subject))) return false;
  }
  return true;
}
