/** The names that a question may mean (docs/spec/dns.md §2, §3). Pure. */

/** A name that the question may mean. */
export interface Alias {
  readonly name: string;
  /** The asked name without its search domain; null when none was taken off. */
  readonly stripped: string | null;
}

/** The client's view of names. */
export interface NameContext {
  /** The client's namespace. */
  readonly namespace: string;
  /** E.g. `cluster.local`. */
  readonly clusterDomain: string;
  /** Suffixes that the client's resolver may have appended, in order. */
  readonly searchDomains: readonly string[];
}

/** The search domains that Kubernetes gives a pod. */
export function meshSearchDomains(namespace: string, clusterDomain: string): readonly string[] {
  return [`${namespace}.svc.${clusterDomain}`, `svc.${clusterDomain}`, clusterDomain];
}

/** The name itself and the names it may be short for, in order and each once. `name` is in lower case, without a trailing dot. */
export function aliasesOf(name: string, context: NameContext): Alias[] {
  const found = new Map<string, Alias>();
  const add = (alias: string, stripped: string | null): void => {
    if (!found.has(alias)) found.set(alias, { name: alias, stripped });
  };
  add(name, null);
  for (const expansion of expansionsOf(name, context)) add(expansion, null);
  for (const domain of context.searchDomains) {
    if (!name.endsWith(`.${domain}`)) continue;
    const stripped = name.slice(0, -domain.length - 1);
    add(stripped, stripped);
    for (const expansion of expansionsOf(stripped, context)) add(expansion, stripped);
  }
  return [...found.values()];
}

/** The name, then its wildcard forms: `*` replaces one more of the first labels each time, down to `*.` and the last label. */
export function wildcardForms(name: string): string[] {
  const labels = name.split('.');
  const wildcards = labels.slice(1).map((_, index) => `*.${labels.slice(index + 1).join('.')}`);
  return [name, ...wildcards];
}

/** The full names that a short form of a Kubernetes service's name stands for, by its number of labels. */
function expansionsOf(name: string, { namespace, clusterDomain }: NameContext): string[] {
  const labels = name.split('.');
  const svc = `svc.${clusterDomain}`;
  switch (labels.length) {
    case 1:
      return [`${name}.${namespace}.${svc}`];
    case 2:
      return [`${name}.${svc}`, `${name}.${namespace}.${svc}`];
    case 3:
      return labels[2] === 'svc'
        ? [`${name}.${clusterDomain}`, `${name}.${svc}`]
        : [`${name}.${svc}`];
    case 4:
      return labels[3] === 'svc' ? [`${name}.${clusterDomain}`] : [];
    default:
      return [];
  }
}
