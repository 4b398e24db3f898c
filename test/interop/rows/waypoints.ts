import { freshIp, podWith, podsWith } from './comparison.ts';
import type { Comparison } from './comparison.ts';

interface WaypointParts {
  readonly labels?: string;
  readonly annotations?: string;
  readonly listeners?: string;
  readonly from?: string;
  /** Addresses of the status; none leaves it without. */
  readonly addresses?: string;
  readonly className?: string;
}

/** A waypoint of a class that no controller of the tests manages, as it is once it has an address. */
const waypoint = (
  ns: string,
  name: string,
  {
    labels = '',
    annotations = '',
    from = '{ from: Same }',
    listeners = `{ name: mesh, port: 15008, protocol: HBONE, allowedRoutes: { namespaces: ${from} } }`,
    addresses = `{ type: IPAddress, value: ${freshIp()} }`,
    className = 'by-hand',
  }: WaypointParts = {},
): string => `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: ${name}, namespace: ${ns}, labels: { ${labels} }, annotations: { ${annotations} } }
spec: { gatewayClassName: ${className}, listeners: [${listeners}] }
${addresses === '' ? '' : `status: { addresses: [${addresses}] }`}
---
`;

const gatewayClass = (name: string, metadata: string): string => `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: { name: ${name}, ${metadata} }
spec: { controllerName: weft.test/by-hand }
---
`;

const service = (ns: string, name: string, labels = '', annotations = ''): string => `
apiVersion: v1
kind: Service
metadata: { name: ${name}, namespace: ${ns}, labels: { ${labels} }, annotations: { ${annotations} } }
spec: { selector: { app: ${name} }, ports: [{ port: 80 }] }
---
`;

const USE = 'istio.io/use-waypoint';
const FOR = 'istio.io/waypoint-for';
const BINDING = 'ambient.istio.io/waypoint-inbound-binding';
const GATEWAY = 'gateway.networking.k8s.io/gateway-name';

/** Waypoints: docs/spec/istiod-ambient.md §1.6. */
export const waypointComparisons: readonly Comparison[] = [
  {
    title: 'a waypoint for an object of its own, and none',
    rows: ['1.1.17', '1.6.a', '1.6.1', '1.6.b', '1.6.d'],
    objects: (ns) => [
      waypoint(ns, 'services') +
        waypoint(ns, 'workloads', { labels: `${FOR}: workload` }) +
        waypoint(ns, 'all', { labels: `${FOR}: all` }) +
        waypoint(ns, 'nothing', { labels: `${FOR}: none` }) +
        waypoint(ns, 'unready', { addresses: '' }) +
        service(ns, 'bound', `${USE}: services`) +
        service(ns, 'wrong-kind', `${USE}: workloads`) +
        service(ns, 'both-kinds', `${USE}: all`) +
        service(ns, 'no-kind', `${USE}: nothing`) +
        service(ns, 'missing', `${USE}: nobody`) +
        service(ns, 'waits', `${USE}: unready`),
      ...podsWith(ns, {
        bound: { [USE]: 'workloads' },
        'wrong-kind': { [USE]: 'services' },
        'both-kinds': { [USE]: 'all' },
      }),
      `
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: { name: bound, namespace: ${ns}, labels: { ${USE}: workloads } }
spec: { address: ${freshIp()} }
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: { name: inner-label, namespace: ${ns}, labels: { is: labelled } }
spec: { address: ${freshIp()}, labels: { ${USE}: workloads } }
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: { name: bound, namespace: ${ns}, labels: { ${USE}: all } }
spec:
  hosts: [bound.${ns}.example.com]
  addresses: [192.0.2.80]
  resolution: STATIC
  ports: [{ number: 443, name: tls, protocol: TLS }]
  endpoints: [{ address: 192.0.2.81, labels: { ${USE}: workloads } }, { address: 192.0.2.82 }]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: { name: dns, namespace: ${ns}, labels: { ${USE}: services } }
spec:
  hosts: [dns.${ns}.example.com]
  resolution: DNS
  ports: [{ number: 443, name: tls, protocol: TLS }]
`,
    ],
  },
  {
    title: 'a waypoint for a namespace, and the way out of it',
    rows: ['1.6.2', '1.6.e'],
    labels: { [USE]: 'everything', 'istio.io/ingress-use-waypoint': 'true' },
    objects: (ns) => [
      waypoint(ns, 'everything', { labels: `${FOR}: all` }) +
        waypoint(ns, 'own', { labels: `${FOR}: all` }) +
        service(ns, 'inherits') +
        service(ns, 'other', `${USE}: own`) +
        service(ns, 'missing', `${USE}: nobody`) +
        service(ns, 'opts-out', `${USE}: none`) +
        service(ns, 'no-ingress', 'istio.io/ingress-use-waypoint: "false"') +
        service(ns, 'of-waypoint', 'gateway.istio.io/managed: istio.io-mesh-controller') +
        service(ns, 'of-gateway', 'gateway.istio.io/managed: istio.io-eastwest-controller') +
        service(ns, 'of-another', 'gateway.istio.io/managed: istio.io-gateway-controller'),
      ...podsWith(ns, {
        inherits: {},
        'opts-out': { [USE]: 'none' },
        'is-waypoint': { [GATEWAY]: 'everything' },
        'is-nothing': { [GATEWAY]: 'nobody' },
      }),
    ],
  },
  {
    title: 'a namespace whose waypoint takes services alone',
    rows: ['1.6.d'],
    labels: { [USE]: 'services' },
    objects: (ns) => [
      waypoint(ns, 'services') + service(ns, 'inherits'),
      ...podsWith(ns, { inherits: {}, asks: { [USE]: 'services' } }),
    ],
  },
  {
    title: 'the traffic that a class of gateways takes',
    rows: ['1.6.d', '1.1.18'],
    objects: (ns) => [
      gatewayClass(
        `${ns}-workloads`,
        `labels: { ${FOR}: workload }, annotations: { ${BINDING}: PROXY/15088 }`,
      ) +
        waypoint(ns, 'of-class', { className: `${ns}-workloads` }) +
        waypoint(ns, 'own', { className: `${ns}-workloads`, labels: `${FOR}: service` }) +
        service(ns, 'class', `${USE}: of-class`) +
        service(ns, 'own', `${USE}: own`),
      ...podsWith(ns, { class: { [USE]: 'of-class' }, instance: { [GATEWAY]: 'of-class' } }),
    ],
  },
  {
    title: 'the application tunnel of the pods of a waypoint',
    rows: ['1.1.18', '1.6.c'],
    second: {},
    objects: (ns, second) => [
      ...Object.entries({
        none: 'NONE',
        proxy: 'PROXY',
        port: 'PROXY/15088',
        unknown: 'TLS/15088',
        'no-port': 'PROXY/abc',
        long: 'PROXY/1/2',
      }).flatMap(([name, binding]) => [
        waypoint(ns, name, {
          annotations: `${BINDING}: ${binding}`,
          listeners:
            '{ name: a, port: 15008, protocol: HBONE }, ' +
            '{ name: b, port: 15088, protocol: istio.io/PROXY, allowedRoutes: { namespaces: { from: All } } }',
        }) + service(second, name, `${USE}: ${name}, ${USE}-namespace: ${ns}`),
        podWith(ns, name, {}, { labels: { [GATEWAY]: name } }),
      ]),
      `
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: { name: instance, namespace: ${ns}, labels: { ${GATEWAY}: port } }
spec: { address: ${freshIp()} }
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: { name: instances, namespace: ${ns}, labels: { is: labelled } }
spec:
  hosts: [instances.${ns}.example.com]
  addresses: [192.0.2.85]
  resolution: STATIC
  ports: [{ number: 443, name: tls, protocol: TLS }]
  endpoints: [{ address: 192.0.2.86, labels: { ${GATEWAY}: port } }]
`,
    ],
  },
  {
    title: 'the address of a waypoint',
    rows: ['1.6.f'],
    objects: (ns) => [
      Object.entries({
        ip: '{ type: IPAddress, value: 192.0.2.210 }',
        six: '{ type: IPAddress, value: "fd00:250::1" }',
        untyped: '{ value: 192.0.2.211 }',
        host: '{ type: Hostname, value: host.example.com }',
        both: '{ type: IPAddress, value: 192.0.2.212 }, { type: Hostname, value: both.example.com }',
        other: '{ type: example.com/own, value: something }',
      })
        .map(
          ([name, addresses]) =>
            waypoint(ns, name, { addresses }) + service(ns, name, `${USE}: ${name}`),
        )
        .join(''),
    ],
  },
  {
    title: 'a waypoint in another namespace',
    rows: ['1.6.1', '1.6.2', '1.6.c'],
    labels: { [USE]: 'all', team: 'blue' },
    second: { labels: { team: 'green' } },
    objects: (ns, second) => [
      waypoint(second, 'same') +
        waypoint(second, 'all', { from: '{ from: All }' }) +
        waypoint(second, 'blue', {
          from: '{ from: Selector, selector: { matchLabels: { team: blue } } }',
        }) +
        waypoint(second, 'green', {
          from: '{ from: Selector, selector: { matchExpressions: [{ key: team, operator: In, values: [green] }] } }',
        }) +
        waypoint(second, 'any', { from: '{ from: Selector, selector: {} }' }) +
        waypoint(second, 'without', { listeners: '{ name: a, port: 15021, protocol: TCP }' }) +
        waypoint(ns, 'all') +
        ['same', 'all', 'blue', 'green', 'any', 'without']
          .flatMap((name) => [
            service(ns, name, `${USE}: ${name}, ${USE}-namespace: ${second}`),
            service(second, name, `${USE}: ${name}`),
          ])
          .join('') +
        service(ns, 'own-namespace', `${USE}-namespace: ${second}`) +
        `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: { name: all, namespace: ${ns}, labels: { ${USE}: all, ${USE}-namespace: ${second} } }
spec:
  hosts: [all.${ns}.example.com]
  addresses: [192.0.2.87]
  resolution: STATIC
  ports: [{ number: 443, name: tls, protocol: TLS }]
`,
    ],
  },
  {
    title: 'a canary waypoint of an object',
    rows: ['1.6.g', '1.6.h'],
    second: {},
    objects: (ns, second) => {
      const weighed = (name: string, weight: string, labels = ''): string =>
        service(
          ns,
          name,
          `${USE}: main, ${USE}-canary: canary, ${labels}`,
          `${USE}-canary-weight: "${weight}"`,
        );
      return [
        waypoint(ns, 'main') +
          waypoint(ns, 'canary') +
          waypoint(ns, 'workloads', { labels: `${FOR}: workload` }) +
          waypoint(second, 'open', { from: '{ from: All }' }) +
          waypoint(second, 'closed') +
          weighed('ten', '10') +
          weighed('whole', '100', 'istio.io/ingress-use-waypoint: "1"') +
          weighed('too-much', '101') +
          weighed('less', '-1') +
          weighed('word', 'half') +
          service(ns, 'unweighted', `${USE}: main, ${USE}-canary: canary`) +
          service(ns, 'same', `${USE}: main, ${USE}-canary: main`) +
          service(ns, 'none', `${USE}: main, ${USE}-canary: none`) +
          service(ns, 'missing', `${USE}: main, ${USE}-canary: nobody`) +
          service(ns, 'wrong-kind', `${USE}: main, ${USE}-canary: workloads`) +
          service(ns, 'alone', `${USE}-canary: canary`) +
          service(
            ns,
            'elsewhere',
            `${USE}: main, ${USE}-canary: open, ${USE}-canary-namespace: ${second}`,
            `${USE}-canary-weight: "5"`,
          ) +
          service(
            ns,
            'refused',
            `${USE}: main, ${USE}-canary: closed, ${USE}-canary-namespace: ${second}`,
          ) +
          service(ns, 'ingress', `${USE}: main, istio.io/ingress-use-waypoint: "true"`) +
          service(ns, 'ingress-word', `${USE}: main, istio.io/ingress-use-waypoint: "yes"`) +
          service(ns, 'ingress-alone', 'istio.io/ingress-use-waypoint: "true"') +
          `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata:
  name: entry
  namespace: ${ns}
  labels: { ${USE}: main, ${USE}-canary: canary, istio.io/ingress-use-waypoint: "true" }
  annotations: { ${USE}-canary-weight: "20" }
spec:
  hosts: [canary.${ns}.example.com]
  addresses: [192.0.2.88]
  resolution: STATIC
  ports: [{ number: 443, name: tls, protocol: TLS }]
`,
      ];
    },
  },
  {
    title: 'a canary waypoint of a namespace',
    rows: ['1.6.g'],
    labels: { [USE]: 'main', [`${USE}-canary`]: 'canary' },
    annotations: { [`${USE}-canary-weight`]: '30' },
    objects: (ns) => [
      waypoint(ns, 'main') +
        waypoint(ns, 'canary') +
        waypoint(ns, 'other') +
        service(ns, 'inherits') +
        service(ns, 'own-primary', `${USE}: main`) +
        service(ns, 'own-canary', `${USE}-canary: other`) +
        service(ns, 'own-weight', '', `${USE}-canary-weight: "40"`) +
        service(ns, 'no-canary', `${USE}-canary: none`) +
        service(ns, 'opts-out', `${USE}: none`),
    ],
  },
];
