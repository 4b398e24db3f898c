/** AuthorizationPolicy → Authorization (docs/spec/istiod-ambient.md §2.1 and §2.2). Pure. */
import type { Authorization, Match, StringMatch } from '../../../lib/policy/model.ts';
import type { AuthorizationPolicy } from '../manifests/kinds.ts';
import { namespaceOf } from '../manifests/kinds.ts';
import {
  EMPTY_MATCH,
  addressRanges,
  inEveryTrustDomain,
  ports,
  serviceAccounts,
  stringMatches,
} from './conversion.ts';
import type { FieldProblem } from '../manifests/validate.ts';
import { enforceable } from './enforceable.ts';

/** Settings of the conversion. */
export interface PolicyOptions {
  readonly rootNamespace: string;
  /** True sends policies annotated as dry run; false leaves them out. */
  readonly dryRun: boolean;
  /** The mesh's trust domain and its aliases: a principal of one of them means the same account in all. */
  readonly trustDomains?: readonly string[];
}

/** Whether a policy is enforced as written, and the reason when it is not. */
export interface PolicyStatus {
  readonly accepted: boolean;
  readonly reason:
    | 'Accepted'
    | 'UnsupportedValue'
    | 'Invalid'
    | 'PartiallyInvalid'
    | 'AncestorNotBound'
    | 'TargetNotFound';
  readonly message: string;
  /** The enforcement point that the status describes. */
  readonly at: 'ztunnel' | 'waypoint';
}

/** The policy as it is sent, or null when it is not sent, and its status for the author. */
export interface ConvertedPolicy {
  readonly authorization: Authorization | null;
  /** The labels of the workloads that list it; null for a policy that no workload lists. */
  readonly selector: Labels | null;
  readonly status: PolicyStatus;
}

/** A set of labels. */
type Labels = Readonly<Record<string, string>>;
type Rule = NonNullable<AuthorizationPolicy['spec']['rules']>[number];
type Source = NonNullable<Rule['from']>[number]['source'];
type Operation = NonNullable<Rule['to']>[number]['operation'];
type Condition = NonNullable<Rule['when']>[number];
type Clause = Authorization['rules'][number]['clauses'][number];
type TargetReference = NonNullable<AuthorizationPolicy['spec']['targetRefs']>[number];

interface RuleContext {
  readonly action: 'ALLOW' | 'DENY';
  readonly namespace: string;
  readonly options: PolicyOptions;
}

const DRY_RUN_ANNOTATION = 'istio.io/dry-run';

/** Source fields that layer 4 does not support. Upstream ignores trust domains, which would widen an ALLOW. */
const UNSUPPORTED_SOURCE = [
  'requestPrincipals',
  'notRequestPrincipals',
  'remoteIpBlocks',
  'notRemoteIpBlocks',
  'trustDomains',
  'notTrustDomains',
] as const;
const UNSUPPORTED_OPERATION = [
  'hosts',
  'notHosts',
  'methods',
  'notMethods',
  'paths',
  'notPaths',
] as const;

/**
 * Converts one policy. A policy may come from an API server that checked less: what cannot be read never widens access, see
 * {@link enforceable}.
 */
export function convertPolicy(given: AuthorizationPolicy, options: PolicyOptions): ConvertedPolicy {
  const { policy, problems } = enforceable(given);
  if (policy === null) return denyAll(given, problems);
  const { spec } = policy;
  if (targetsOf(policy).length > 0) {
    return unsent('TargetNotFound', 'there is no waypoint', 'waypoint');
  }
  const action = spec.action ?? 'ALLOW';
  if (action === 'CUSTOM' || action === 'AUDIT') {
    return unsent('UnsupportedValue', `action ${action} is not supported without a waypoint`);
  }
  const dryRun = isDryRun(policy);
  if (dryRun && !options.dryRun) {
    return unsent('UnsupportedValue', 'dry-run policies are not supported');
  }
  const unsupported = new Set<string>();
  const rules = (spec.rules ?? [])
    .map((rule) =>
      convertRule(rule, { action, namespace: namespaceOf(policy), options }, unsupported),
    )
    .filter((rule) => rule !== null);
  return {
    authorization: {
      name: policy.metadata.name,
      namespace: namespaceOf(policy),
      scope: scopeOf(policy, options),
      action,
      rules,
      dryRun,
    },
    selector: spec.selector === undefined ? null : (spec.selector.matchLabels ?? {}),
    status: problems.length === 0 ? statusFor(policy, action, unsupported) : invalid(problems),
  };
}

/** The objects that a policy targets. */
export function targetsOf({ spec }: AuthorizationPolicy): readonly TargetReference[] {
  return spec.targetRefs ?? (spec.targetRef === undefined ? [] : [spec.targetRef]);
}

/** A policy of which too much cannot be read: it denies everything in its namespace. */
function denyAll(policy: AuthorizationPolicy, problems: readonly FieldProblem[]): ConvertedPolicy {
  return {
    authorization: {
      name: policy.metadata.name,
      namespace: namespaceOf(policy),
      scope: 'NAMESPACE',
      action: 'DENY',
      rules: [{ clauses: [] }],
      dryRun: false,
    },
    selector: null,
    status: { ...invalid(problems), reason: 'Invalid' },
  };
}

function invalid(problems: readonly FieldProblem[]): PolicyStatus {
  const faults = problems.map(({ path, reason }) => (path === '' ? reason : `${path}: ${reason}`));
  return {
    accepted: false,
    reason: 'PartiallyInvalid',
    message: `what cannot be read allows less or denies more: ${faults.join('; ')}`,
    at: 'ztunnel',
  };
}

function unsent(
  reason: PolicyStatus['reason'],
  message: string,
  at: PolicyStatus['at'] = 'ztunnel',
): ConvertedPolicy {
  return { authorization: null, selector: null, status: { accepted: false, reason, message, at } };
}

/** An annotation that is neither true nor false leaves the policy enforced. */
function isDryRun(policy: AuthorizationPolicy): boolean {
  const text = policy.metadata.annotations?.[DRY_RUN_ANNOTATION]?.toLowerCase();
  return text === 'true' || text === '1' || text === 't';
}

function scopeOf(policy: AuthorizationPolicy, options: PolicyOptions): Authorization['scope'] {
  if (policy.spec.selector !== undefined) return 'WORKLOAD_SELECTOR';
  return namespaceOf(policy) === options.rootNamespace ? 'GLOBAL' : 'NAMESPACE';
}

/** The clauses of a rule: `to`, `from`, and each `when`. Null for an ALLOW rule that layer 4 cannot decide. */
function convertRule(
  rule: Rule,
  { action, namespace, options }: RuleContext,
  unsupported: Set<string>,
): { clauses: Clause[] } | null {
  const own = unsupportedFields(rule);
  for (const field of own) unsupported.add(field);
  // Layer 4 cannot see the rule's conditions, so it admits nothing by the rule.
  if (action === 'ALLOW' && own.length > 0) return null;
  const clauses: Clause[] = [];
  if (rule.to !== undefined) {
    clauses.push({ matches: rule.to.map(({ operation }) => convertOperation(operation)) });
  }
  if (rule.from !== undefined) {
    clauses.push({
      matches: rule.from.map(({ source }) => convertSource(source, namespace, options)),
    });
  }
  for (const condition of rule.when ?? []) {
    clauses.push({ matches: [convertCondition(condition, options) ?? EMPTY_MATCH] });
  }
  return { clauses };
}

function unsupportedFields(rule: Rule): string[] {
  const sources = (rule.from ?? []).flatMap(({ source }) =>
    UNSUPPORTED_SOURCE.filter((field) => source[field] !== undefined),
  );
  const operations = (rule.to ?? []).flatMap(({ operation }) =>
    UNSUPPORTED_OPERATION.filter((field) => operation[field] !== undefined),
  );
  const conditions = (rule.when ?? [])
    .filter((condition) => !isKnownCondition(condition))
    .map((condition) => condition.key);
  return [...sources, ...operations, ...conditions];
}

function convertOperation(operation: Operation): Match {
  return {
    ...EMPTY_MATCH,
    destinationPorts: ports(operation.ports),
    notDestinationPorts: ports(operation.notPorts),
  };
}

function convertSource(source: Source, namespace: string, options: PolicyOptions): Match {
  const principals = (texts: readonly string[] | undefined): StringMatch[] =>
    stringMatches(inEveryTrustDomain(texts, options.trustDomains ?? []));
  return {
    ...EMPTY_MATCH,
    sourceIps: addressRanges(source.ipBlocks),
    notSourceIps: addressRanges(source.notIpBlocks),
    namespaces: stringMatches(source.namespaces),
    notNamespaces: stringMatches(source.notNamespaces),
    principals: principals(source.principals),
    notPrincipals: principals(source.notPrincipals),
    serviceAccounts: serviceAccounts(source.serviceAccounts, namespace),
    notServiceAccounts: serviceAccounts(source.notServiceAccounts, namespace),
  };
}

/** False for a key that layer 4 cannot see. */
function isKnownCondition({ key }: Condition): boolean {
  return conditionMatch(key, undefined, undefined) !== null;
}

/** Null for a key that layer 4 cannot see. */
function convertCondition(
  { key, values, notValues }: Condition,
  { trustDomains = [] }: PolicyOptions,
): Match | null {
  const isPrincipal = key === 'source.principal';
  const match = conditionMatch(
    key,
    isPrincipal ? inEveryTrustDomain(values, trustDomains) : values,
    isPrincipal ? inEveryTrustDomain(notValues, trustDomains) : notValues,
  );
  return match && { ...EMPTY_MATCH, ...match };
}

function conditionMatch(
  key: string,
  is: Condition['values'],
  not: Condition['notValues'],
): Partial<Match> | null {
  switch (key) {
    case 'source.ip':
      return { sourceIps: addressRanges(is), notSourceIps: addressRanges(not) };
    case 'source.namespace':
      return { namespaces: stringMatches(is), notNamespaces: stringMatches(not) };
    case 'source.principal':
      return { principals: stringMatches(is), notPrincipals: stringMatches(not) };
    case 'destination.ip':
      return { destinationIps: addressRanges(is), notDestinationIps: addressRanges(not) };
    case 'destination.port':
      return { destinationPorts: ports(is), notDestinationPorts: ports(not) };
    default:
      return null;
  }
}

function statusFor(
  policy: AuthorizationPolicy,
  action: 'ALLOW' | 'DENY',
  unsupported: ReadonlySet<string>,
): PolicyStatus {
  if (unsupported.size === 0) {
    return { accepted: true, reason: 'Accepted', message: 'enforced by ztunnel', at: 'ztunnel' };
  }
  const fields = [...unsupported].sort().join(', ');
  return {
    accepted: false,
    reason: 'UnsupportedValue',
    message: `ztunnel does not support ${fields}: ${consequence(policy, action)}`,
    at: 'ztunnel',
  };
}

function consequence(policy: AuthorizationPolicy, action: 'ALLOW' | 'DENY'): string {
  if (action === 'ALLOW') return 'rules that use them are left out, so less is allowed';
  const fires = (policy.spec.rules ?? []).some(canFire);
  return fires
    ? 'the policy is enforced without them, so more is denied'
    : 'the policy has no effect without them';
}

/** False for a rule with a clause whose matches are all empty: such a clause never holds. */
function canFire(rule: Rule): boolean {
  const options = { rootNamespace: '', dryRun: false };
  const converted = convertRule(rule, { action: 'DENY', namespace: '', options }, new Set());
  return (
    converted?.clauses.every(({ matches }) => matches.some((match) => !isEmpty(match))) ?? false
  );
}

function isEmpty(match: Match): boolean {
  return Object.values(match).every(
    (conditions) => (conditions as readonly unknown[]).length === 0,
  );
}
