/** One form for resources that mean the same, so that two control planes can be compared. */
import { isDeepStrictEqual } from 'node:util';

/** A decoded message as JSON. */
export type Fields = Readonly<Record<string, unknown>>;

interface Port extends Fields {
  readonly servicePort?: number;
}

interface Policy {
  readonly rules: readonly {
    readonly clauses: readonly { readonly matches: readonly Fields[] }[];
  }[];
}

interface Mapped {
  readonly ports?: readonly Port[];
  readonly services?: Readonly<Record<string, { readonly ports?: readonly Port[] }>>;
  readonly authorizationPolicies?: readonly string[];
}

/**
 * Brings a workload, a service or a policy into its form. The order of ports and of the names of policies has no meaning, and of
 * two ports with one number proxies keep the last. Workloads tell no protocol of their ports: istiod leaves it out there and
 * proxies do not read it, while Weft repeats the service's.
 */
export function canonicalResource(resource: Fields): Fields {
  if ('rules' in resource) return canonicalPolicy(resource as Fields & Policy);
  const { ports, services, authorizationPolicies } = resource as Mapped;
  const plain = Object.entries(services ?? {}).map(([name, { ports: listed = [] }]) => [
    name,
    { ports: portsOf(listed.map((port) => ({ ...port, appProtocol: undefined }))) },
  ]);
  return {
    ...resource,
    ...(ports === undefined ? {} : { ports: portsOf(ports) }),
    ...(services === undefined ? {} : { services: Object.fromEntries(plain) as Fields }),
    ...(authorizationPolicies === undefined
      ? {}
      : { authorizationPolicies: authorizationPolicies.toSorted() }),
  };
}

function portsOf(ports: readonly Port[]): Port[] {
  return sorted([...new Map(ports.map((port) => [port.servicePort, port])).values()]);
}

/**
 * All clauses of a rule must hold, and all fields of a match: so a clause with one match is the same as a clause for each of its
 * fields, in any order and however often. An empty match never holds and stays.
 */
function canonicalPolicy(policy: Fields & Policy): Fields {
  const rules = policy.rules.map(({ clauses }) => {
    const split = clauses.flatMap(({ matches }): (readonly Fields[])[] => {
      const set = matches.map(fieldsOf);
      const [only = {}, ...more] = set;
      const fields = Object.entries(only);
      if (more.length > 0 || fields.length < 2) return [set];
      return fields.map(([field, value]) => [{ [field]: value }]);
    });
    const distinct: (readonly Fields[])[] = [];
    for (const clause of split) {
      if (!distinct.some((known) => isDeepStrictEqual(known, clause))) distinct.push(clause);
    }
    return sorted(distinct);
  });
  return { ...policy, rules };
}

function fieldsOf(match: Fields): Fields {
  const set = Object.entries(match).filter(([, value]) => Array.isArray(value) && value.length > 0);
  return Object.fromEntries(set);
}

function sorted<T>(items: readonly T[]): T[] {
  return items.toSorted((left, right) => (JSON.stringify(left) < JSON.stringify(right) ? -1 : 1));
}
