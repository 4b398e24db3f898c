import { podWith, podsWith } from './comparison.ts';
import type { Comparison } from './comparison.ts';

const service = (ns: string, name: string, spec: string, annotations = ''): string => `
apiVersion: v1
kind: Service
metadata: { name: ${name}, namespace: ${ns}, annotations: { ${annotations} } }
spec: ${spec}
---
`;

const DISTRIBUTION = 'networking.istio.io/traffic-distribution';

/** Services and the workloads behind them: docs/spec/istiod-ambient.md §1.2, §1.4. */
export const serviceComparisons: readonly Comparison[] = [
  {
    title: 'services select pods; named and numeric target ports',
    rows: ['1.1.19', '1.2.a', '1.2.1', '1.2.b', '1.4.a', '1.4.b', '1.4.c'],
    objects: (ns) => [
      ...podsWith(ns, { web: { app: 'web', tier: 'front' }, other: { app: 'other' } }),
      podWith(
        ns,
        'many',
        {
          spec: {
            initContainers: [
              {
                name: 'side',
                image: 'x',
                restartPolicy: 'Always',
                ports: [{ name: 'side', containerPort: 7001 }],
              },
              { name: 'once', image: 'x', ports: [{ name: 'once', containerPort: 7002 }] },
            ],
            containers: [
              {
                name: 'main',
                image: 'x',
                ports: [
                  { name: 'udp', containerPort: 7003, protocol: 'UDP' },
                  { name: 'http', containerPort: 7004 },
                ],
              },
            ],
          },
        },
        { labels: { app: 'many' } },
      ),
      service(
        ns,
        'web',
        `{ selector: { app: web }, ports: [
          { name: http, port: 80, targetPort: http }, { name: grpc-api, port: 90, targetPort: 9090 },
          { name: missing, port: 91, targetPort: nowhere }, { name: dns, port: 53, protocol: UDP, targetPort: 53 },
          { name: app, port: 92, appProtocol: kubernetes.io/h2c } ] }`,
      ) +
        service(
          ns,
          'many',
          `{ selector: { app: many }, ports: [
            { name: a, port: 1, targetPort: side }, { name: b, port: 2, targetPort: once },
            { name: c, port: 3, targetPort: udp }, { name: d, port: 4, targetPort: http },
            { name: dns, port: 53, protocol: UDP }, { name: dns-tcp, port: 53, protocol: TCP } ] }`,
        ) +
        service(
          ns,
          'headless',
          '{ clusterIP: None, selector: { tier: front }, ports: [{ port: 80 }] }',
        ) +
        service(
          ns,
          'dual',
          '{ ipFamilyPolicy: PreferDualStack, selector: { app: web }, ports: [{ port: 80 }] }',
        ) +
        service(
          ns,
          'six',
          '{ ipFamilies: [IPv6], selector: { app: web }, ports: [{ port: 80 }] }',
        ) +
        service(ns, 'outside', '{ type: ExternalName, externalName: example.com }') +
        service(
          ns,
          'early',
          '{ publishNotReadyAddresses: true, selector: { app: web }, ports: [{ port: 80 }] }',
        ) +
        service(
          ns,
          'local',
          '{ internalTrafficPolicy: Local, publishNotReadyAddresses: true, trafficDistribution: PreferClose, selector: { app: web }, ports: [{ port: 80 }] }',
        ),
    ],
  },
  {
    title: 'the protocol of a port: by its appProtocol, its name and its number',
    rows: ['1.4.a'],
    objects: (ns) => [
      service(
        ns,
        'named',
        `{ ports: [ ${[
          'http',
          'http-a',
          'http2-a',
          'grpc',
          'grpc-web-a',
          'https-a',
          'tls',
          'tcp-a',
          'mongo',
          'redis-a',
          'mysql',
          'plain',
          'a-http',
        ]
          .map((name, index) => `{ name: ${name}, port: ${index + 1} }`)
          .join(', ')} ] }`,
      ) +
        service(
          ns,
          'told',
          `{ ports: [ ${[
            'http',
            'HTTP2',
            'grpc',
            'https',
            'tls',
            'tcp',
            'kubernetes.io/h2c',
            'kubernetes.io/ws',
            'kubernetes.io/wss',
            'example.com/own',
            'grpc-web',
            'http-own',
          ]
            .map((word, index) => `{ name: p${index}, port: ${index + 1}, appProtocol: ${word} }`)
            .join(', ')} ] }`,
        ) +
        service(
          ns,
          'known',
          '{ ports: [{ name: smtp, port: 25 }, { name: a, port: 53 }, { name: b, port: 3306 }, { name: c, port: 27017 }, { name: http-d, port: 3307 }] }',
        ),
    ],
  },
  {
    title: 'traffic distribution of services',
    rows: ['1.4.b', '1.4.1', '1.4.2'],
    objects: (ns) => [
      service(ns, 'close', '{ trafficDistribution: PreferClose, ports: [{ port: 80 }] }') +
        service(ns, 'zone', '{ ports: [{ port: 80 }] }', `${DISTRIBUTION}: PreferSameZone`) +
        service(ns, 'node', '{ ports: [{ port: 80 }] }', `${DISTRIBUTION}: prefersamenode`) +
        service(
          ns,
          'both',
          '{ trafficDistribution: PreferClose, ports: [{ port: 80 }] }',
          `${DISTRIBUTION}: PreferSameNode`,
        ) +
        service(
          ns,
          'unready',
          '{ publishNotReadyAddresses: true, trafficDistribution: PreferClose, ports: [{ port: 80 }] }',
        ) +
        service(ns, 'unknown', '{ ports: [{ port: 80 }] }', `${DISTRIBUTION}: Nearest`),
    ],
  },
  {
    title: 'traffic distribution of a namespace',
    rows: ['1.4.b'],
    annotations: { [DISTRIBUTION]: 'PreferSameNode' },
    objects: (ns) => [
      service(ns, 'inherits', '{ ports: [{ port: 80 }] }') +
        service(ns, 'own', '{ ports: [{ port: 80 }] }', `${DISTRIBUTION}: PreferClose`) +
        service(ns, 'unknown', '{ ports: [{ port: 80 }] }', `${DISTRIBUTION}: Nearest`) +
        service(ns, 'local', '{ internalTrafficPolicy: Local, ports: [{ port: 80 }] }'),
      `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: { name: inherits, namespace: ${ns} }
spec:
  hosts: [distributed.${ns}.example.com]
  addresses: [192.0.2.60]
  resolution: STATIC
  ports: [{ number: 443, name: tls, protocol: TLS }]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: { name: own, namespace: ${ns}, annotations: { ${DISTRIBUTION}: preferclose } }
spec:
  hosts: [own.${ns}.example.com]
  addresses: [192.0.2.61]
  resolution: STATIC
  ports: [{ number: 443, name: tls, protocol: TLS }]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: { name: passes, namespace: ${ns} }
spec:
  hosts: [passes.${ns}.example.com]
  addresses: [192.0.2.62]
  resolution: NONE
  ports: [{ number: 443, name: tls, protocol: TLS }]
`,
    ],
  },
  {
    title: 'slices of a service without a selector: pods by name and uid',
    rows: ['1.2.2'],
    objects: (ns) => [
      ...podsWith(ns, { named: {}, replaced: {}, far: {} }),
      service(ns, 'bare', '{ ports: [{ name: http, port: 80, targetPort: http }] }'),
    ],
    later: (cluster, stored) => {
      const { namespace = '', uid } = stored[0]?.metadata ?? {};
      const target = (name: string, podUid?: string): string =>
        `{ addresses: [192.0.2.4], targetRef: { kind: Pod, name: ${name}, namespace: ${namespace}, uid: ${podUid ?? ''} } }`;
      return cluster.applyText(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: bare-1, namespace: ${namespace}, labels: { kubernetes.io/service-name: bare } }
addressType: IPv4
ports: [{ name: http, port: 8081, protocol: TCP }]
endpoints:
- ${target('named', uid)}
- ${target('replaced', 'b6f7c1d2-0000-4000-8000-000000000002')}
`);
    },
  },
  {
    title: 'slices of a service without a selector: addresses that are no pods',
    rows: ['1.3.1'],
    objects: (ns) => [
      service(
        ns,
        'bare',
        '{ ports: [{ name: http, port: 80, targetPort: 8080 }, { name: udp, port: 53, protocol: UDP }] }',
      ) + service(ns, 'selects', '{ selector: { app: none }, ports: [{ port: 80 }] }'),
      slice(ns, 'bare-1', {
        service: 'bare',
        ports: '{ name: http, port: 8081 }, { name: udp, port: 53, protocol: UDP }',
        endpoints:
          '{ addresses: ["192.0.2.1"] }, { addresses: ["192.0.2.2"], conditions: { ready: false } }, { addresses: ["192.0.2.5"], targetRef: { kind: Node, name: n } }',
      }) +
        slice(ns, 'stray', { service: 'nobody' }) +
        slice(ns, 'unlabelled', {}) +
        slice(ns, 'selects-1', { service: 'selects', ports: '{ port: 8082 }' }) +
        slice(ns, 'names', {
          service: 'bare',
          type: 'FQDN',
          endpoints: '{ addresses: ["example.com"] }',
        }) +
        slice(ns, 'six', {
          service: 'bare',
          type: 'IPv6',
          endpoints: '{ addresses: ["fd00:248::1"] }',
        }),
    ],
  },
];

function slice(
  ns: string,
  name: string,
  {
    service: of = '',
    type = 'IPv4',
    ports = '{ name: http, port: 8081 }',
    endpoints = '{ addresses: ["192.0.2.3"] }',
  },
): string {
  const labels = of === '' ? '' : `kubernetes.io/service-name: ${of}`;
  return `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: ${name}, namespace: ${ns}, labels: { ${labels} } }
addressType: ${type}
ports: [${ports}]
endpoints: [${endpoints}]
---
`;
}
