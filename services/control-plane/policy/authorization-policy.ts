/** AuthorizationPolicy → Authorization (docs/spec/istiod-ambient.md §2.1 and §2.2). Pure. */
import type { Authorization, Match } from '../../../lib/policy/model.ts';
import type { AuthorizationPolicy } from '../manifests/kinds.ts';
import { namespaceOf } from '../manifests/kinds.ts';
import { EMPTY_MATCH, addressRanges, ports, serviceAccounts, stringMatches } from './conversion.ts';

/** Settings of the conversion. */
export interface PolicyOptions {
  readonly rootNamespace: string;
  /** True sends policies annotated as dry run; false leaves them out. */
  readonly dryRun: boolean;
}

/** Whether a policy is enforced as written, and the reason when it is not. */
export interface PolicyStatus {
  readonly accepted: boolean;
  readonly reason: 'Accepted' | 'UnsupportedValue' | 'TargetNotFound';
  readonly message: string;
  /** The enforcement point that the status describes. */
  readonly at: 'ztunnel' | 'waypoint';
}

/** The policy as it is sent, or null when it is not sent, and its status for the author. */
export interface ConvertedPolicy {
  readonly authorization: Authorization | null;
  readonly status: PolicyStatus;
}

type Rule = NonNullable<AuthorizationPolicy['spec']['rules']>[number];
type Source = NonNullable<Rule['from']>[number]['source'];
type Operation = NonNullable<Rule['to']>[number]['operation'];
type Condition = NonNullable<Rule['when']>[number];
type Clause = Authorization['rules'][number]['clauses'][number];

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

/** Converts one policy. */
export function convertPolicy(
  policy: AuthorizationPolicy,
  options: PolicyOptions,
): ConvertedPolicy {
  const { spec } = policy;
  if (spec.targetRef !== undefined || spec.targetRefs !== undefined) {
    return unsent('TargetNotFound', 'policies with a target need a waypoint', 'waypoint');
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
    .map((rule) => convertRule(rule, action, namespaceOf(policy), unsupported))
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
    status: statusFor(policy, action, unsupported),
  };
}

/** True when a policy with this selector binds a workload by its labels. */
export function selects(
  selector: { readonly matchLabels?: Readonly<Record<string, string>> | undefined },
  labels: Readonly<Record<string, string>>,
): boolean {
  return Object.entries(selector.matchLabels ?? {}).every(([key, value]) => labels[key] === value);
}

function unsent(
  reason: PolicyStatus['reason'],
  message: string,
  at: PolicyStatus['at'] = 'ztunnel',
): ConvertedPolicy {
  return { authorization: null, status: { accepted: false, reason, message, at } };
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
  action: 'ALLOW' | 'DENY',
  namespace: string,
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
    clauses.push({ matches: rule.from.map(({ source }) => convertSource(source, namespace)) });
  }
  for (const condition of rule.when ?? []) {
    clauses.push({ matches: [convertCondition(condition) ?? EMPTY_MATCH] });
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
    .filter((condition) => convertCondition(condition) === null)
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

function convertSource(source: Source, namespace: string): Match {
  return {
    ...EMPTY_MATCH,
    sourceIps: addressRanges(source.ipBlocks),
    notSourceIps: addressRanges(source.notIpBlocks),
    namespaces: stringMatches(source.namespaces),
    notNamespaces: stringMatches(source.notNamespaces),
    principals: stringMatches(source.principals),
    notPrincipals: stringMatches(source.notPrincipals),
    serviceAccounts: serviceAccounts(source.serviceAccounts, namespace),
    notServiceAccounts: serviceAccounts(source.notServiceAccounts, namespace),
  };
}

/** Null for a key that layer 4 cannot see. */
function convertCondition({ key, values, notValues }: Condition): Match | null {
  const match = conditionMatch(key, values, notValues);
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
  const converted = convertRule(rule, 'DENY', '', new Set());
  return (
    converted?.clauses.every(({ matches }) => matches.some((match) => !isEmpty(match))) ?? false
  );
}

function isEmpty(match: Match): boolean {
  return Object.values(match).every(
    (conditions) => (conditions as readonly unknown[]).length === 0,
  );
}
