import type { Authorization, Match, StringMatch } from '../../../lib/policy/model.ts';
import { omitEmpty, title } from './shape.ts';

/** Returns a policy in the form that istioctl reads (docs/spec/observability.md §4.1, match keys of docs/spec/control.md §4). */
export function dumpPolicy(policy: Authorization): object {
  return {
    name: policy.name,
    namespace: policy.namespace,
    scope: title(policy.scope),
    action: title(policy.action),
    rules: policy.rules.map((rule) => rule.clauses.map((clause) => clause.matches.map(dumpMatch))),
    dryRun: policy.dryRun,
  };
}

function dumpMatch(match: Match): object {
  return omitEmpty({
    namespaces: match.namespaces.map(dumpString),
    notNamespaces: match.notNamespaces.map(dumpString),
    serviceAccounts: match.serviceAccounts,
    notServiceAccounts: match.notServiceAccounts,
    principals: match.principals.map(dumpString),
    notPrincipals: match.notPrincipals.map(dumpString),
    sourceIps: match.sourceIps.map(dumpRange),
    notSourceIps: match.notSourceIps.map(dumpRange),
    destinationIps: match.destinationIps.map(dumpRange),
    notDestinationIps: match.notDestinationIps.map(dumpRange),
    destinationPorts: match.destinationPorts,
    notDestinationPorts: match.notDestinationPorts,
  });
}

function dumpString(match: StringMatch): object {
  return match.kind === 'presence'
    ? { Presence: [] }
    : { [title(match.kind.toUpperCase())]: match.value };
}

function dumpRange(range: { readonly address: string; readonly length: number }): string {
  return `${range.address}/${range.length}`;
}
