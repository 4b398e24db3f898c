/** The host name of a Kubernetes Service (docs/spec/istiod-ambient.md §1.4). */
export function serviceHostname(name: string, namespace: string, domain: string): string {
  return `${name}.${namespace}.svc.${domain}`;
}
