import { meshPod } from '../support/istio-cluster.ts';
import { freshIp } from './comparison.ts';
import type { Comparison } from './comparison.ts';

const policy = (ns: string, name: string, spec: string, annotations = ''): string => `
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: { name: ${name}, namespace: ${ns}, annotations: { ${annotations} } }
spec: ${spec}
---
`;

const authentication = (ns: string, name: string, spec: string): string => `
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: { name: ${name}, namespace: ${ns} }
spec: ${spec}
---
`;

/** Policies: docs/spec/istiod-ambient.md §2. */
export const policyComparisons: readonly Comparison[] = [
  {
    title: 'which policies reach the proxies, and their scope',
    rows: ['2.1', '2.1.1', '2.1.2', '2.1.3', '2.1.4', '1.1.20', '2.4'],
    objects: (ns) => [
      meshPod(ns, 'web', freshIp(), { labels: { app: 'web' } }),
      policy(ns, 'namespace', '{ rules: [{}] }') +
        policy(ns, 'selected', '{ selector: { matchLabels: { app: web } }, rules: [{}] }') +
        policy(ns, 'others', '{ selector: { matchLabels: { app: other } }, rules: [{}] }') +
        policy(
          ns,
          'target',
          `{ targetRefs: [{ kind: Service, group: "", name: web }], rules: [{}] }`,
        ) +
        policy(ns, 'audit', '{ action: AUDIT, rules: [{}] }') +
        policy(ns, 'custom', '{ action: CUSTOM, provider: { name: x }, rules: [{}] }') +
        policy(ns, 'dry', '{ rules: [{}] }', 'istio.io/dry-run: "true"') +
        policy(ns, 'not-dry', '{ rules: [{}] }', 'istio.io/dry-run: "maybe"'),
    ],
  },
  {
    title: 'the fields of rules',
    rows: ['2.2', '2.2.1', '2.2.2', '2.2.3', '2.2.4', '2.2.10'],
    objects: (ns) => [
      policy(
        ns,
        'ports',
        '{ rules: [{ to: [{ operation: { ports: ["80", "443"], notPorts: ["81"] } }] }] }',
      ) +
        policy(
          ns,
          'blocks',
          '{ rules: [{ from: [{ source: { ipBlocks: [10.0.0.0/8, 192.0.2.1], notIpBlocks: ["fd00::/8"] } }] }] }',
        ) +
        policy(
          ns,
          'sources',
          '{ rules: [{ from: [{ source: { namespaces: [a, "b*", "*c", "*"], notNamespaces: [d] } }, { source: { principals: ["cluster.local/ns/a/sa/b"], notPrincipals: ["*/sa/x"] } }, { source: { serviceAccounts: [a/b, c], notServiceAccounts: [d] } }] }] }',
        ) +
        policy(
          ns,
          'when',
          '{ action: DENY, rules: [{ when: [{ key: source.ip, values: [10.1.0.0/16] }, { key: source.namespace, notValues: [a] }, { key: source.principal, values: [p] }, { key: destination.ip, values: [10.2.0.1] }, { key: destination.port, notValues: ["80"] }] }] }',
        ) +
        policy(ns, 'allow-all', '{ rules: [{}] }') +
        policy(ns, 'allow-none', '{}') +
        policy(ns, 'deny-all', '{ action: DENY, rules: [{}] }'),
    ],
  },
  {
    title: 'rules about HTTP',
    rows: ['2.2.5', '2.2.6', '2.2.7', '2.2.8', '2.2.9'],
    objects: (ns) => [
      policy(
        ns,
        'allow',
        '{ rules: [{ to: [{ operation: { methods: [GET] } }] }, { to: [{ operation: { ports: ["80"] } }] }] }',
      ) +
        policy(ns, 'allow-only', '{ rules: [{ to: [{ operation: { paths: ["/a"] } }] }] }') +
        policy(
          ns,
          'deny-mixed',
          '{ action: DENY, rules: [{ to: [{ operation: { ports: ["80"], methods: [GET] } }] }] }',
        ) +
        policy(
          ns,
          'deny-beside',
          '{ action: DENY, rules: [{ from: [{ source: { principals: [p] } }], to: [{ operation: { methods: [GET] } }] }] }',
        ) +
        policy(
          ns,
          'deny-when',
          '{ action: DENY, rules: [{ from: [{ source: { namespaces: [a] } }], when: [{ key: "request.headers[x]", values: [y] }] }] }',
        ) +
        policy(
          ns,
          'deny-request',
          '{ action: DENY, rules: [{ from: [{ source: { requestPrincipals: ["*"], namespaces: [a] } }] }] }',
        ),
    ],
  },
  {
    title: 'peer authentication of a namespace and of workloads',
    rows: ['2.3', '2.3.1', '2.3.2', '2.3.3', '2.3.6'],
    objects: (ns) => [
      ...['web', 'ports', 'open', 'strict'].map((app) =>
        meshPod(ns, app, freshIp(), { labels: { app } }),
      ),
      authentication(ns, 'default', '{ mtls: { mode: STRICT } }') +
        authentication(
          ns,
          'ports',
          '{ selector: { matchLabels: { app: ports } }, mtls: { mode: STRICT }, portLevelMtls: { "80": { mode: PERMISSIVE }, "81": { mode: DISABLE } } }',
        ) +
        authentication(
          ns,
          'open',
          '{ selector: { matchLabels: { app: open } }, mtls: { mode: PERMISSIVE } }',
        ) +
        authentication(
          ns,
          'strict',
          '{ selector: { matchLabels: { app: strict } }, mtls: { mode: STRICT }, portLevelMtls: { "80": { mode: STRICT } } }',
        ),
    ],
  },
  {
    title: 'peer authentication of ports alone',
    rows: ['2.3.4'],
    objects: (ns) => [
      meshPod(ns, 'web', freshIp(), { labels: { app: 'web' } }),
      authentication(
        ns,
        'web',
        '{ selector: { matchLabels: { app: web } }, mtls: { mode: PERMISSIVE }, portLevelMtls: { "80": { mode: STRICT } } }',
      ),
    ],
  },
  {
    title: 'peer authentication of ports below a strict namespace',
    rows: ['2.3.5'],
    objects: (ns) => [
      meshPod(ns, 'web', freshIp(), { labels: { app: 'web' } }),
      authentication(ns, 'default', '{ mtls: { mode: STRICT } }') +
        authentication(
          ns,
          'web',
          '{ selector: { matchLabels: { app: web } }, portLevelMtls: { "80": { mode: PERMISSIVE } } }',
        ),
    ],
  },
];
