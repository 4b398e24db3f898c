/** Rights that an installation and the command line need. */

/** A right in the release's namespace, or in all of them. */
export interface Right {
  readonly verb: string;
  readonly group: string;
  /** `pods` or `pods/log`. */
  readonly resource: string;
  readonly everywhere: boolean;
}

/** Names of the resource definitions that the chart brings. */
export const DEFINITIONS = [
  'authorizationpolicies.security.istio.io',
  'peerauthentications.security.istio.io',
  'serviceentries.networking.istio.io',
  'workloadentries.networking.istio.io',
] as const;

/** Resources that Helm creates for the chart with its default values. */
const CREATED: readonly (readonly [group: string, resource: string, everywhere: boolean])[] = [
  ['', 'namespaces', true],
  ['', 'configmaps', false],
  ['', 'secrets', false],
  ['', 'services', false],
  ['', 'serviceaccounts', false],
  ['apps', 'daemonsets', false],
  ['apps', 'deployments', false],
  ['batch', 'jobs', false],
  ['policy', 'poddisruptionbudgets', false],
  ['networking.k8s.io', 'networkpolicies', false],
  ['rbac.authorization.k8s.io', 'roles', false],
  ['rbac.authorization.k8s.io', 'rolebindings', false],
  ['rbac.authorization.k8s.io', 'clusterroles', true],
  ['rbac.authorization.k8s.io', 'clusterrolebindings', true],
  ['apiextensions.k8s.io', 'customresourcedefinitions', true],
  ['admissionregistration.k8s.io', 'validatingwebhookconfigurations', true],
  ['admissionregistration.k8s.io', 'validatingadmissionpolicies', true],
  ['admissionregistration.k8s.io', 'validatingadmissionpolicybindings', true],
];

/** Rights of the account that installs the chart. */
export const NEEDED_RIGHTS: readonly Right[] = CREATED.map(([group, resource, everywhere]) => ({
  verb: 'create',
  group,
  resource,
  everywhere,
}));

/** Rights with which every read command works. */
export const READING_RIGHTS: readonly Right[] = (
  [
    ['list', 'pods', false],
    ['get', 'pods/portforward', false],
    ['create', 'pods/portforward', false],
    ['get', 'pods/log', false],
    ['list', 'pods', true],
  ] as const
).map(([verb, resource, everywhere]) => ({ verb, group: '', resource, everywhere }));

/** `create roles.rbac.authorization.k8s.io`, with where. */
export function rightText({ verb, group, resource, everywhere }: Right): string {
  const name = group === '' ? resource : `${resource}.${group}`;
  return `${verb} ${name}${everywhere ? ' in all namespaces' : ''}`;
}
