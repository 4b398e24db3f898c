import { meshPod } from '../support/istio-cluster.ts';
import { freshIp } from './comparison.ts';
import type { Comparison } from './comparison.ts';

/** A waypoint of a class that no controller of the tests manages, as it is once it has an address. */
const waypoint = (
  ns: string,
  name: string,
  { labels = '', from = 'Same', address = '192.0.2.200' } = {},
): string => `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: ${name}, namespace: ${ns}, labels: { ${labels} } }
spec:
  gatewayClassName: by-hand
  listeners:
  - { name: mesh, port: 15008, protocol: HBONE, allowedRoutes: { namespaces: { from: ${from} } } }
${address === '' ? '' : `status: { addresses: [{ type: IPAddress, value: ${address} }] }`}
`;

const service = (ns: string, name: string, labels = ''): string => `
apiVersion: v1
kind: Service
metadata: { name: ${name}, namespace: ${ns}, labels: { ${labels} } }
spec: { selector: { app: ${name} }, ports: [{ port: 80 }] }
`;

/** Waypoints: docs/spec/istiod-ambient.md §1.6. */
export const waypointComparisons: readonly Comparison[] = [
  {
    title: 'a waypoint for an object of its own, and none',
    rows: ['1.1.17', '1.6', '1.6.1'],
    objects: (ns) => [
      waypoint(ns, 'services'),
      waypoint(ns, 'workloads', {
        labels: 'istio.io/waypoint-for: workload',
        address: '192.0.2.201',
      }),
      waypoint(ns, 'unready', { address: '' }),
      service(ns, 'bound', 'istio.io/use-waypoint: services'),
      service(ns, 'wrong-kind', 'istio.io/use-waypoint: workloads'),
      service(ns, 'missing', 'istio.io/use-waypoint: nobody'),
      service(ns, 'waits', 'istio.io/use-waypoint: unready'),
      service(
        ns,
        'ingress',
        'istio.io/use-waypoint: services, istio.io/ingress-use-waypoint: "true"',
      ),
      meshPod(ns, 'bound', freshIp(), { labels: { 'istio.io/use-waypoint': 'workloads' } }),
      meshPod(ns, 'wrong-kind', freshIp(), { labels: { 'istio.io/use-waypoint': 'services' } }),
    ],
  },
  {
    title: 'a waypoint for a namespace, and the way out of it',
    rows: ['1.6.2'],
    labels: { 'istio.io/use-waypoint': 'everything' },
    objects: (ns) => [
      waypoint(ns, 'everything', { labels: 'istio.io/waypoint-for: all', address: '192.0.2.202' }),
      service(ns, 'inherits'),
      service(ns, 'opts-out', 'istio.io/use-waypoint: none'),
      meshPod(ns, 'inherits', freshIp()),
      meshPod(ns, 'opts-out', freshIp(), { labels: { 'istio.io/use-waypoint': 'none' } }),
      meshPod(ns, 'is-waypoint', freshIp(), {
        labels: { 'gateway.networking.k8s.io/gateway-name': 'everything' },
      }),
    ],
  },
];
