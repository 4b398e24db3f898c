/** Makes policies and connections from the shorthand of docs/spec/policy.md §8. */
import { compileProgram } from '../../lib/policy/compile.ts';
import { evaluate } from '../../lib/policy/evaluate.ts';
import type {
  Authorization,
  ConnectionFacts,
  Match,
  StringMatch,
  Verdict,
} from '../../lib/policy/model.ts';
import { parsePrefix } from '../../lib/net/prefix.ts';
import { matchFixture } from './model-fixtures.ts';

/** Rules as lists of clauses, clauses as lists of matches. */
export type Rules = readonly (readonly (readonly Partial<Match>[])[])[];

/** Makes a policy; by default a namespace policy of `app`. */
export function policy(
  action: 'ALLOW' | 'DENY',
  rules: Rules,
  options: Partial<Authorization> = {},
): Authorization {
  return {
    name: `${action.toLowerCase()}-it`,
    namespace: 'app',
    scope: 'NAMESPACE',
    action,
    rules: rules.map((clauses) => ({
      clauses: clauses.map((matches) => ({ matches: matches.map((match) => matchFixture(match)) })),
    })),
    dryRun: false,
    ...options,
  };
}

export const exact = (value: string): StringMatch => ({ kind: 'exact', value });
export const prefix = (value: string): StringMatch => ({ kind: 'prefix', value });
export const suffix = (value: string): StringMatch => ({ kind: 'suffix', value });
export const presence: StringMatch = { kind: 'presence' };

/** Parses a range as written in a policy, with its host bits. */
export function range(text: string): { address: string; length: number } {
  parsePrefix(text);
  const [address = '', length = ''] = text.split('/');
  return { address, length: Number(length) };
}

/** The peers of the table, at the pod 10.0.0.9. */
export const peers = {
  A: { sourceIp: '10.1.2.3', sourceIdentity: 'spiffe://cluster.local/ns/a/sa/x' },
  B: { sourceIp: '10.1.2.4', sourceIdentity: 'spiffe://other.td/ns/a/sa/x' },
  P: { sourceIp: '10.1.2.3', sourceIdentity: null },
} as const;

/** Makes a connection from a peer to the pod. */
export function connection(
  peer: keyof typeof peers,
  overrides: Partial<ConnectionFacts> = {},
): ConnectionFacts {
  return { ...peers[peer], destinationIp: '10.0.0.9', destinationPort: 8080, ...overrides };
}

/** Compiles the policies as one set and evaluates a connection. */
export function judgeBy(policies: readonly Authorization[], facts: ConnectionFacts): Verdict {
  const named = policies.map((item, index) => ({
    key: `${item.namespace}/${item.name}-${index}`,
    policy: item,
  }));
  return evaluate(compileProgram('test', named), facts);
}
