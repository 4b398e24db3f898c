import { freshIp, nextSecond, podsWith } from './comparison.ts';
import type { Conditions } from './conditions.ts';
import type { Comparison } from './comparison.ts';

interface Parts {
  readonly kind?: 'ServiceEntry' | 'WorkloadEntry';
  readonly labels?: string;
  readonly annotations?: string;
}

const entry = (
  ns: string,
  name: string,
  spec: string,
  { kind = 'ServiceEntry', labels = '', annotations = '' }: Parts = {},
): string => `
apiVersion: networking.istio.io/v1
kind: ${kind}
metadata: { name: ${name}, namespace: ${ns}, labels: { ${labels === '' ? 'is: labelled' : labels} }, annotations: { ${annotations} } }
spec: ${spec}
---
`;

const workload = (ns: string, name: string, spec: string, parts: Parts = {}): string =>
  entry(ns, name, spec, { ...parts, kind: 'WorkloadEntry' });

const TLS = 'ports: [{ number: 443, name: tls, protocol: TLS }]';

/** A ServiceEntry with one address of its own, and an endpoint when one is given. */
const oneAddress = (
  ns: string,
  name: string,
  hosts: string,
  address: string,
  endpoint: string | null = null,
): string =>
  entry(
    ns,
    name,
    `{ hosts: [${hosts}], addresses: [${address}], resolution: STATIC, ${TLS}${endpoint === null ? '' : `, endpoints: [{ address: ${endpoint} }]`} }`,
  );

const webService = (ns: string): string => `
apiVersion: v1
kind: Service
metadata: { name: web, namespace: ${ns} }
spec: { ports: [{ port: 80 }] }
---
`;

/** WorkloadEntries and ServiceEntries: docs/spec/istiod-ambient.md §1.3, §1.5. */
export const entryComparisons: readonly Comparison[] = [
  {
    title: 'workload entries',
    rows: ['1.3.2', '1.1.16'],
    objects: (ns) => [
      workload(
        ns,
        'vm',
        `{ address: ${freshIp()}, serviceAccount: vm, weight: 7, locality: r1/z1/s1, network: n1 }`,
        { labels: 'app: vm, version: v2' },
      ) +
        workload(ns, 'named', `{ address: ${freshIp()} }`, {
          labels: 'service.istio.io/workload-name: w, networking.istio.io/tunnel: http',
        }) +
        workload(
          ns,
          'inner',
          `{ address: ${freshIp()}, labels: { app: vm, networking.istio.io/tunnel: http }, locality: r1 }`,
          { labels: 'app: outer', annotations: 'ambient.istio.io/redirection: enabled' },
        ) +
        workload(ns, 'group', `{ address: ${freshIp()} }`, {
          labels: 'service.istio.io/workload-name: w',
          annotations: 'istio.io/autoRegistrationGroup: registered',
        }) +
        workload(ns, 'host', '{ address: vm.example.com }') +
        workload(
          ns,
          'ports',
          `{ address: ${freshIp()}, ports: { http: 8090, own: 8091, named: 8092 } }`,
          { labels: 'app: ports' },
        ) +
        `
apiVersion: v1
kind: Service
metadata: { name: vm, namespace: ${ns} }
spec: { selector: { app: vm }, ports: [{ name: http, port: 80, targetPort: 8080 }] }
---
apiVersion: v1
kind: Service
metadata: { name: ports, namespace: ${ns} }
spec:
  selector: { app: ports }
  ports:
  - { name: http, port: 80, targetPort: 8080 }
  - { name: a, port: 81, targetPort: own }
  - { name: named, port: 82, targetPort: nowhere }
  - { name: none, port: 83 }
---
` +
        entry(
          ns,
          'ports',
          `{ hosts: [ports.${ns}.example.com], addresses: [192.0.2.50], resolution: STATIC, location: MESH_INTERNAL,
            workloadSelector: { labels: { app: ports } },
            ports: [{ number: 80, name: http, protocol: HTTP }, { number: 81, name: own, protocol: HTTP, targetPort: 9 }, { number: 82, name: x, protocol: HTTP, targetPort: 10 }] }`,
        ),
    ],
  },
  {
    title: 'service entries: endpoints, addresses, ports, names',
    rows: ['1.3.3', '1.5.a', '1.2.b'],
    objects: (ns) => [
      ...podsWith(ns, { web: { app: 'web' } }),
      entry(
        ns,
        'static',
        `{ hosts: [static.${ns}.example.com, other.${ns}.example.com],
          addresses: [192.0.2.10, 198.51.100.0/24, "fd00:249::/64"], resolution: STATIC, location: MESH_EXTERNAL,
          subjectAltNames: ["spiffe://cluster.local/ns/x/sa/y"],
          ports: [{ number: 443, name: tls, protocol: TLS }, { number: 80, name: http, protocol: HTTP, targetPort: 8080 },
            { number: 81, name: grpc, protocol: GRPC }, { number: 82, name: h2, protocol: HTTP2 }, { number: 83, name: tcp, protocol: TCP },
            { number: 84, name: https, protocol: HTTPS }, { number: 85, name: mongo, protocol: MONGO }],
          endpoints: [{ address: 192.0.2.20, ports: { tls: 8443 }, locality: r1/z1, labels: { app: endpoint, networking.istio.io/tunnel: http } },
            { address: 192.0.2.21, weight: 3, serviceAccount: account, network: elsewhere }] }`,
        {
          labels: 'app: static, version: v3',
          annotations: 'ambient.istio.io/redirection: disabled',
        },
      ) +
        entry(
          ns,
          'tunnel',
          `{ hosts: [tunnel.${ns}.example.com], addresses: [192.0.2.11], resolution: STATIC, location: MESH_INTERNAL, ${TLS},
            endpoints: [{ address: 192.0.2.22 }] }`,
          { labels: 'networking.istio.io/tunnel: http' },
        ) +
        entry(
          ns,
          'none',
          `{ hosts: [none.${ns}.example.com], addresses: [192.0.2.30], resolution: NONE, location: MESH_EXTERNAL, ${TLS} }`,
        ) +
        entry(
          ns,
          'selects',
          `{ hosts: [selects.${ns}.example.com], addresses: [192.0.2.40], resolution: STATIC, location: MESH_INTERNAL,
            ports: [{ number: 80, name: http, protocol: HTTP }, { number: 81, name: other, protocol: HTTP, targetPort: 9 }],
            workloadSelector: { labels: { app: web } } }`,
        ),
    ],
  },
  {
    title: 'service entries with DNS resolution, and their automatic addresses',
    rows: ['1.3.4', '1.5.a'],
    objects: (ns) => [
      entry(
        ns,
        'dns',
        `{ hosts: [dns.${ns}.example.com, two.${ns}.example.com], resolution: DNS, location: MESH_EXTERNAL, ${TLS} }`,
        { labels: 'app: dns' },
      ) +
        entry(
          ns,
          'robin',
          `{ hosts: [robin.${ns}.example.com], resolution: DNS_ROUND_ROBIN, location: MESH_EXTERNAL, ${TLS} }`,
        ) +
        entry(
          ns,
          'wild',
          `{ hosts: ["*.wild.${ns}.example.com"], resolution: DYNAMIC_DNS, location: MESH_EXTERNAL, ${TLS} }`,
        ) +
        entry(
          ns,
          'wild-none',
          `{ hosts: ["*.none.${ns}.example.com"], resolution: NONE, location: MESH_EXTERNAL, ${TLS} }`,
        ) +
        entry(
          ns,
          'without',
          `{ hosts: [without.${ns}.example.com], resolution: DNS, location: MESH_EXTERNAL, ${TLS} }`,
          { labels: 'networking.istio.io/enable-autoallocate-ip: "false"' },
        ) +
        entry(
          ns,
          'endpoints',
          `{ hosts: [endpoints.${ns}.example.com], addresses: [192.0.2.31], resolution: DNS, location: MESH_EXTERNAL, ${TLS},
            endpoints: [{ address: a.example.com, ports: { tls: 8443 } }] }`,
        ) +
        entry(
          ns,
          'nobody',
          `{ hosts: [nobody.${ns}.example.com], addresses: [192.0.2.32], resolution: STATIC, location: MESH_EXTERNAL, ${TLS} }`,
        ),
    ],
  },
  {
    title: 'one host of a service and of several entries',
    conditions: (written) => {
      const told = written['ServiceEntry/z-older istio.io/VisibilityApplied'];
      if (told === undefined) return written;
      const others = ['a-younger', 'pruned'].map((name) => [
        `ServiceEntry/${name} istio.io/VisibilityApplied`,
        told,
      ]);
      return { ...written, ...(Object.fromEntries(others) as Conditions) };
    },
    rows: ['1.5.a'],
    objects: (ns) => [
      webService(ns) +
        oneAddress(
          ns,
          'same-as-service',
          `web.${ns}.svc.cluster.local, kept.${ns}.example.com`,
          '192.0.2.41',
          '192.0.2.71',
        ) +
        oneAddress(ns, 'pruned', `web.${ns}.svc.cluster.local`, '192.0.2.42', '192.0.2.72'),
    ],
    later: async (cluster, stored) => {
      const { namespace = '' } = stored[0]?.metadata ?? {};
      const named = (name: string, address: string): string =>
        oneAddress(namespace, name, `twice.${namespace}.example.com`, address, address);
      await nextSecond(await cluster.applyText(named('z-older', '192.0.2.73')));
      await cluster.applyText(named('a-younger', '192.0.2.74'));
    },
  },
  {
    title: 'one host in two namespaces',
    rows: ['1.5.a'],
    second: {},
    objects: (ns, second) => [
      webService(ns) +
        oneAddress(second, 'of-service', `web.${ns}.svc.cluster.local`, '192.0.2.75') +
        oneAddress(second, 'shared', `shared.${ns}.example.com`, '192.0.2.76'),
    ],
    later: async (cluster, stored) => {
      const { namespace: ns = '' } = stored[0]?.metadata ?? {};
      await nextSecond(stored);
      await cluster.applyText(oneAddress(ns, 'shared', `shared.${ns}.example.com`, '192.0.2.77'));
    },
  },
];
