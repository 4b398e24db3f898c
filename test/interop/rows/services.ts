import { meshPod } from '../support/istio-cluster.ts';
import { freshIp } from './comparison.ts';
import type { Comparison } from './comparison.ts';

/** Services and other sources of workloads: docs/spec/istiod-ambient.md §1.2 to §1.5. */
export const serviceComparisons: readonly Comparison[] = [
  {
    title: 'services select pods; named and numeric target ports',
    rows: ['1.1.19', '1.2', '1.2.1', '1.4'],
    objects: (ns) => [
      meshPod(ns, 'web', freshIp(), { labels: { app: 'web', tier: 'front' } }),
      meshPod(ns, 'other', freshIp(), { labels: { app: 'other' } }),
      `
apiVersion: v1
kind: Service
metadata: { name: web, namespace: ${ns} }
spec:
  selector: { app: web }
  ports:
  - { name: http, port: 80, targetPort: http }
  - { name: grpc-api, port: 90, targetPort: 9090 }
  - { name: missing, port: 91, targetPort: nowhere }
  - { name: dns, port: 53, protocol: UDP, targetPort: 53 }
  - { name: app, port: 92, appProtocol: kubernetes.io/h2c }
---
apiVersion: v1
kind: Service
metadata: { name: headless, namespace: ${ns} }
spec: { clusterIP: None, selector: { tier: front }, ports: [{ port: 80 }] }
---
apiVersion: v1
kind: Service
metadata: { name: dual, namespace: ${ns} }
spec: { ipFamilyPolicy: PreferDualStack, selector: { app: web }, ports: [{ port: 80 }] }
---
apiVersion: v1
kind: Service
metadata: { name: outside, namespace: ${ns} }
spec: { type: ExternalName, externalName: example.com }
---
apiVersion: v1
kind: Service
metadata: { name: early, namespace: ${ns} }
spec: { publishNotReadyAddresses: true, selector: { app: web }, ports: [{ port: 80 }] }
---
apiVersion: v1
kind: Service
metadata: { name: local, namespace: ${ns} }
spec: { internalTrafficPolicy: Local, selector: { app: web }, ports: [{ port: 80 }] }
`,
    ],
  },
  {
    title: 'slices of a service without a selector: addresses that are no pods',
    rows: ['1.3', '1.3.1'],
    objects: (ns) => [
      `
apiVersion: v1
kind: Service
metadata: { name: bare, namespace: ${ns} }
spec: { ports: [{ name: http, port: 80, targetPort: 8080 }, { name: udp, port: 53, protocol: UDP }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: bare-1, namespace: ${ns}, labels: { kubernetes.io/service-name: bare } }
addressType: IPv4
ports: [{ name: http, port: 8081, protocol: TCP }, { name: udp, port: 53, protocol: UDP }]
endpoints:
- { addresses: ["192.0.2.1"] }
- { addresses: ["192.0.2.2"], conditions: { ready: false } }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: stray, namespace: ${ns}, labels: { kubernetes.io/service-name: nobody } }
addressType: IPv4
ports: [{ name: http, port: 8081 }]
endpoints: [{ addresses: ["192.0.2.3"] }]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: names, namespace: ${ns}, labels: { kubernetes.io/service-name: bare } }
addressType: FQDN
ports: [{ name: http, port: 8081 }]
endpoints: [{ addresses: ["example.com"] }]
`,
    ],
  },
  {
    title: 'workload entries',
    rows: ['1.3.2'],
    objects: (ns) => [
      `
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: { name: vm, namespace: ${ns}, labels: { app: vm, version: v2 } }
spec: { address: ${freshIp()}, serviceAccount: vm, weight: 7, locality: r1/z1/s1, network: n1 }
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: { name: named, namespace: ${ns}, labels: { service.istio.io/workload-name: w, networking.istio.io/tunnel: http } }
spec: { address: ${freshIp()} }
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: { name: host, namespace: ${ns} }
spec: { address: vm.example.com }
---
apiVersion: v1
kind: Service
metadata: { name: vm, namespace: ${ns} }
spec: { selector: { app: vm }, ports: [{ name: http, port: 80, targetPort: 8080 }] }
`,
    ],
  },
  {
    title: 'service entries: endpoints, DNS, addresses, ports, names',
    rows: ['1.3.3', '1.3.4', '1.5'],
    objects: (ns) => [
      meshPod(ns, 'web', freshIp(), { labels: { app: 'web' } }),
      `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: { name: static, namespace: ${ns}, labels: { app: static } }
spec:
  hosts: [static.${ns}.example.com, other.${ns}.example.com]
  addresses: [192.0.2.10, 198.51.100.0/24]
  resolution: STATIC
  location: MESH_EXTERNAL
  subjectAltNames: ["spiffe://cluster.local/ns/x/sa/y"]
  ports: [{ number: 443, name: tls, protocol: TLS }, { number: 80, name: http, protocol: HTTP, targetPort: 8080 }]
  endpoints:
  - { address: 192.0.2.20, ports: { tls: 8443 }, locality: r1/z1 }
  - { address: 192.0.2.21, weight: 3 }
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: { name: dns, namespace: ${ns} }
spec:
  hosts: [dns.${ns}.example.com]
  resolution: DNS
  location: MESH_EXTERNAL
  ports: [{ number: 443, name: tls, protocol: TLS }]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: { name: none, namespace: ${ns} }
spec:
  hosts: [none.${ns}.example.com]
  addresses: [192.0.2.30]
  resolution: NONE
  location: MESH_EXTERNAL
  ports: [{ number: 443, name: tls, protocol: TLS }]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: { name: selects, namespace: ${ns} }
spec:
  hosts: [selects.${ns}.example.com]
  addresses: [192.0.2.40]
  resolution: STATIC
  location: MESH_INTERNAL
  ports: [{ number: 80, name: http, protocol: HTTP }]
  workloadSelector: { labels: { app: web } }
`,
    ],
  },
  {
    title: 'traffic distribution',
    rows: ['1.4.1', '1.4.2'],
    objects: (ns) => [
      `
apiVersion: v1
kind: Service
metadata: { name: close, namespace: ${ns} }
spec: { trafficDistribution: PreferClose, ports: [{ port: 80 }] }
---
apiVersion: v1
kind: Service
metadata: { name: same-zone, namespace: ${ns}, annotations: { networking.istio.io/traffic-distribution: PreferSameZone } }
spec: { ports: [{ port: 80 }] }
---
apiVersion: v1
kind: Service
metadata: { name: same-node, namespace: ${ns}, annotations: { networking.istio.io/traffic-distribution: prefersamenode } }
spec: { ports: [{ port: 80 }] }
---
apiVersion: v1
kind: Service
metadata: { name: unknown, namespace: ${ns}, annotations: { networking.istio.io/traffic-distribution: Nearest } }
spec: { ports: [{ port: 80 }] }
`,
    ],
  },
];
