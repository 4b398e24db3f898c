import { changed, nextSecond, podWith, podsWith } from './comparison.ts';
import type { Comparison } from './comparison.ts';

/** The YAML of an AuthorizationPolicy. */
export const policy = (ns: string, name: string, spec: string, annotations = ''): string => `
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: { name: ${name}, namespace: ${ns}, annotations: { ${annotations} } }
spec: ${spec}
---
`;

/** The YAML of a PeerAuthentication. */
export const authentication = (ns: string, name: string, spec: string): string => `
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
    rows: ['2.1.1', '2.1.2', '2.1.3', '2.1.4', '1.1.20', '2.4.a'],
    objects: (ns) => [
      ...podsWith(ns, { web: { app: 'web' } }),
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
    title: 'workloads without labels',
    rows: ['2.4.a'],
    objects: (ns) => [
      podWith(ns, 'bare', { metadata: { labels: {} } }),
      policy(ns, 'selected', '{ selector: { matchLabels: { app: web } }, rules: [{}] }'),
    ],
    deviation: (resources) =>
      changed(resources, '/bare', (found) => ({ ...found, authorizationPolicies: [] })),
  },
  {
    title: 'the fields of rules',
    rows: ['2.2.a', '2.2.1', '2.2.2', '2.2.3', '2.2.4', '2.2.b', '2.2.10'],
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
        policy(ns, 'deny-all', '{ action: DENY, rules: [{}] }') +
        policy(
          ns,
          'many',
          '{ rules: [{ from: [{ source: { namespaces: [a] } }, { source: { ipBlocks: ["::1"], namespaces: [b] } }], to: [{ operation: { ports: ["1"] } }, { operation: { ports: ["2"] } }] }, { to: [{ operation: { ports: ["3"] } }] }] }',
        ),
    ],
  },
  {
    title: 'values of rules that cannot be read, and trust domains',
    conditions: (written) => ({
      ...written,
      'AuthorizationPolicy/allow-domain ZtunnelAccepted': 'False UnsupportedValue',
      'AuthorizationPolicy/allow-port ZtunnelAccepted': 'False PartiallyInvalid',
      'AuthorizationPolicy/deny-port ZtunnelAccepted': 'False PartiallyInvalid',
      'AuthorizationPolicy/empty-lists ZtunnelAccepted': 'False PartiallyInvalid',
    }),
    rows: ['2.2.1', '2.2.2', '2.2.b'],
    objects: (ns) => [
      policy(ns, 'allow-port', '{ rules: [{ to: [{ operation: { ports: ["80", "x"] } }] }] }') +
        policy(
          ns,
          'deny-port',
          '{ action: DENY, rules: [{ to: [{ operation: { ports: ["80", "x"] } }] }] }',
        ) +
        policy(
          ns,
          'allow-domain',
          '{ rules: [{ from: [{ source: { namespaces: [a], trustDomains: [x] } }] }] }',
        ) +
        policy(ns, 'empty-lists', '{ rules: [{ from: [], to: [], when: [] }] }'),
    ],
    deviation: (resources) => {
      let weft = resources;
      for (const name of ['/allow-port', '/allow-domain', '/empty-lists']) {
        weft = changed(weft, name, (found) => ({ ...found, rules: [] }));
      }
      return changed(weft, '/deny-port', (found) => ({ ...found, rules: [[]] }));
    },
  },
  {
    title: 'rules about HTTP',
    conditions: (written) =>
      Object.fromEntries(
        Object.entries(written).map(([of, state]) => [
          of,
          state === 'True UnsupportedValue' ? 'False UnsupportedValue' : state,
        ]),
      ),
    rows: ['2.2.c', '2.2.5', '2.2.6', '2.2.d', '2.2.7', '2.2.8', '2.2.9'],
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
    rows: ['2.3.a', '2.3.1', '2.3.2', '2.3.3', '2.3.6', '2.3.b'],
    objects: (ns) => [
      ...podsWith(ns, {
        web: { app: 'web' },
        ports: { app: 'ports' },
        open: { app: 'open' },
        strict: { app: 'strict' },
      }),
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
    title: 'the oldest peer authentication of a level counts',
    rows: ['2.3.a'],
    objects: (ns) => [
      ...podsWith(ns, { web: { app: 'web' }, other: {} }),
      authentication(ns, 'z-namespace', '{ mtls: { mode: PERMISSIVE } }') +
        authentication(
          ns,
          'z-workload',
          '{ selector: { matchLabels: { app: web } }, mtls: { mode: STRICT } }',
        ),
    ],
    later: async (cluster, stored) => {
      const { namespace = '' } = stored[0]?.metadata ?? {};
      await nextSecond(stored);
      await cluster.applyText(
        authentication(namespace, 'a-namespace', '{ mtls: { mode: STRICT } }') +
          authentication(
            namespace,
            'a-workload',
            '{ selector: { matchLabels: { app: web } }, mtls: { mode: PERMISSIVE } }',
          ),
      );
    },
  },
  {
    title: 'peer authentication of ports alone',
    rows: ['2.3.4'],
    objects: (ns) => [
      ...podsWith(ns, { web: { app: 'web' } }),
      authentication(
        ns,
        'web',
        '{ selector: { matchLabels: { app: web } }, mtls: { mode: PERMISSIVE }, portLevelMtls: { "80": { mode: STRICT }, "81": { mode: STRICT }, "82": { mode: DISABLE } } }',
      ),
    ],
  },
  {
    title: 'peer authentication of ports below a strict namespace',
    rows: ['2.3.5'],
    objects: (ns) => [
      ...podsWith(ns, { web: { app: 'web' } }),
      authentication(ns, 'default', '{ mtls: { mode: STRICT } }') +
        authentication(
          ns,
          'web',
          '{ selector: { matchLabels: { app: web } }, portLevelMtls: { "80": { mode: PERMISSIVE } } }',
        ),
    ],
  },
];
