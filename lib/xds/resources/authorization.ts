/**
 * istio.security.Authorization: bytes ⇄ the model. A condition that cannot be read is refused, because losing it would
 * widen an ALLOW or void a DENY; upstream drops it (docs/decisions/strict-policy-decoding.md).
 */
import { istio } from '#proto/resources.js';
import { Reader } from 'protobufjs/minimal.js';
import { encodeKept } from './kept-bytes.ts';
import { formatIp, parseIp } from '../../net/address.ts';
import type {
  AddressRange,
  Authorization,
  Match,
  ServiceAccountMatch,
  StringMatch,
} from '../../policy/model.ts';
import { decodeMessage, enumWord, portNumber, refusal } from './fields.ts';

// Enums as words: the index is the wire number.
const SCOPES = ['GLOBAL', 'NAMESPACE', 'WORKLOAD_SELECTOR'] as const;
const ACTIONS = ['ALLOW', 'DENY'] as const;

type Message = istio.security.Authorization;
type RuleMessage = istio.security.Rule.$Properties;
type MatchMessage = istio.security.Match.$Properties;

/** Decodes one policy. Throws XDS_RESOURCE that names the condition and the reason. */
export function decodeAuthorization(bytes: Uint8Array): Authorization {
  const message = decodeMessage('istio.security.Authorization', (): Message => {
    const reader = Reader.create(bytes);
    // Keeps unknown fields, so that an unknown condition can be refused.
    reader.discardUnknown = false;
    return istio.security.Authorization.decode(reader);
  });
  return {
    name: message.name,
    namespace: message.namespace,
    scope: enumWord('scope', SCOPES, message.scope),
    action: enumWord('action', ACTIONS, message.action),
    rules: message.rules.map((rule, index) => decodeRule(`rules[${index}]`, rule)),
    dryRun: message.dryRun,
  };
}

/** The bytes of a policy; equal policies give equal bytes. */
export function encodeAuthorization(policy: Authorization): Uint8Array {
  const scope = SCOPES.indexOf(policy.scope);
  const action = ACTIONS.indexOf(policy.action);
  const message = {
    name: policy.name,
    namespace: policy.namespace,
    ...(scope === 0 ? {} : { scope }),
    ...(action === 0 ? {} : { action }),
    rules: policy.rules.map((rule) => ({
      clauses: rule.clauses.map((clause) => ({ matches: clause.matches.map(matchMessage) })),
    })),
    ...(policy.dryRun ? { dryRun: true } : {}),
  };
  return encodeKept((writer) => istio.security.Authorization.encode(message, writer));
}

function decodeRule(path: string, rule: RuleMessage): Authorization['rules'][number] {
  refuseUnknown(path, rule);
  return {
    clauses: (rule.clauses ?? []).map((clause, clauseIndex) => {
      const clausePath = `${path}.clauses[${clauseIndex}]`;
      refuseUnknown(clausePath, clause);
      return {
        matches: (clause.matches ?? []).map((match, index) =>
          decodeMatch(`${clausePath}.matches[${index}]`, match),
        ),
      };
    }),
  };
}

function decodeMatch(path: string, match: MatchMessage): Match {
  refuseUnknown(path, match);
  const at = <Element, Value>(
    field: string,
    elements: readonly Element[] | null | undefined,
    decode: (path: string, element: Element) => Value,
  ): Value[] =>
    (elements ?? []).map((element, index) => decode(`${path}.${field}[${index}]`, element));
  return {
    namespaces: at('namespaces', match.namespaces, decodeString),
    notNamespaces: at('not_namespaces', match.notNamespaces, decodeString),
    serviceAccounts: at('service_accounts', match.serviceAccounts, decodeServiceAccount),
    notServiceAccounts: at('not_service_accounts', match.notServiceAccounts, decodeServiceAccount),
    principals: at('principals', match.principals, decodeString),
    notPrincipals: at('not_principals', match.notPrincipals, decodeString),
    sourceIps: at('source_ips', match.sourceIps, decodeRange),
    notSourceIps: at('not_source_ips', match.notSourceIps, decodeRange),
    destinationIps: at('destination_ips', match.destinationIps, decodeRange),
    notDestinationIps: at('not_destination_ips', match.notDestinationIps, decodeRange),
    destinationPorts: at('destination_ports', match.destinationPorts, portNumber),
    notDestinationPorts: at('not_destination_ports', match.notDestinationPorts, portNumber),
  };
}

function decodeString(path: string, message: istio.security.StringMatch.$Properties): StringMatch {
  refuseUnknown(path, message);
  // In a decoded message `matchType` names the last variant on the wire.
  const kind = 'matchType' in message ? message.matchType : undefined;
  switch (kind) {
    case 'exact':
    case 'prefix':
    case 'suffix':
      return { kind, value: message[kind] ?? '' };
    case 'presence':
      return { kind };
    default:
      throw refusal(path, 'must be one of exact, prefix, suffix or presence');
  }
}

function decodeServiceAccount(
  path: string,
  message: istio.security.ServiceAccountMatch.$Properties,
): ServiceAccountMatch {
  refuseUnknown(path, message);
  return {
    namespace: message.namespace ?? '',
    serviceAccount: message.serviceAccount ?? '',
  };
}

function decodeRange(path: string, message: istio.security.Address.$Properties): AddressRange {
  refuseUnknown(path, message);
  const bytes = message.address ?? new Uint8Array();
  if (bytes.length !== 4 && bytes.length !== 16) {
    throw refusal(path, `an IP address has 4 or 16 bytes, not ${bytes.length}`);
  }
  const length = message.length ?? 0;
  if (length > bytes.length * 8) {
    throw refusal(path, `prefix length ${length} is above ${bytes.length * 8}`);
  }
  // Not unwrapped: an IPv4-mapped range matches no IPv4 peer (docs/spec/policy.md §4).
  return { address: formatIp(bytes), length };
}

/** Throws XDS_RESOURCE for an unknown field or a wrong wire type: it may be a restriction. */
function refuseUnknown(path: string, message: object): void {
  const unknowns = '$unknowns' in message ? message.$unknowns : undefined;
  if (Array.isArray(unknowns) && unknowns.length > 0) {
    throw refusal(path, 'holds a field this version does not know');
  }
}

function matchMessage(match: Match): MatchMessage {
  return {
    namespaces: match.namespaces.map(stringMessage),
    notNamespaces: match.notNamespaces.map(stringMessage),
    principals: match.principals.map(stringMessage),
    notPrincipals: match.notPrincipals.map(stringMessage),
    sourceIps: match.sourceIps.map(rangeMessage),
    notSourceIps: match.notSourceIps.map(rangeMessage),
    destinationIps: match.destinationIps.map(rangeMessage),
    notDestinationIps: match.notDestinationIps.map(rangeMessage),
    destinationPorts: [...match.destinationPorts],
    notDestinationPorts: [...match.notDestinationPorts],
    serviceAccounts: match.serviceAccounts.map((account) => ({ ...account })),
    notServiceAccounts: match.notServiceAccounts.map((account) => ({ ...account })),
  };
}

function stringMessage(match: StringMatch): istio.security.StringMatch.$Properties {
  return match.kind === 'presence' ? { presence: {} } : { [match.kind]: match.value };
}

function rangeMessage(range: AddressRange): istio.security.Address.$Properties {
  return {
    address: parseIp(range.address).bytes,
    ...(range.length === 0 ? {} : { length: range.length }),
  };
}
