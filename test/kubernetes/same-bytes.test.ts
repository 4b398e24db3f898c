/** Tests that the same objects give the same bytes from an API server and from manifests. */
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { ControlPlaneActor } from '../../services/control-plane/control-plane-actor.ts';
import { controlPlaneConfig } from '../../services/control-plane/config.ts';
import { KINDS } from '../../services/control-plane/manifests/kinds.ts';
import { startActor } from '../support/actor-context.ts';
import type { TestActor } from '../support/actor-context.ts';
import type { CaKit } from '../support/ca-kit.ts';
import { ApiClient } from '../support/control-plane-kit.ts';
import { accountSubject } from '../support/token-issuer.ts';
import { until } from '../support/until.ts';
import type { Cluster, TestObject } from './support/cluster.ts';
import { pod, service } from './support/objects.ts';
import { shownAddresses, shownPolicies, startControlPlane } from './support/control-plane.ts';
import { kubernetesSuite } from './support/suite.ts';

/** Objects of every kind, each with an effect on a resource. */
const everyKind = (ns: string): string => `
apiVersion: v1
kind: Namespace
metadata: { name: ${ns}, labels: { istio.io/use-waypoint: everything, topology.istio.io/network: local } }
---
apiVersion: v1
kind: ConfigMap
metadata: { name: istio, namespace: ${ns} }
data: { mesh: "trustDomain: ${ns}.example" }
---
apiVersion: v1
kind: Node
metadata: { name: ${ns}, labels: { topology.kubernetes.io/region: r1, topology.kubernetes.io/zone: z1 } }
---
apiVersion: v1
kind: ServiceAccount
metadata: { name: web, namespace: ${ns} }
---
apiVersion: v1
kind: Service
metadata: { name: bare, namespace: ${ns}, annotations: { networking.istio.io/traffic-distribution: PreferClose } }
spec: { ports: [{ name: http, port: 80, targetPort: 8080 }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: bare-1, namespace: ${ns}, labels: { kubernetes.io/service-name: bare } }
addressType: IPv4
ports: [{ name: http, port: 8081, protocol: TCP }]
endpoints: [{ addresses: ["192.0.2.1"] }, { addresses: ["192.0.2.2"], conditions: { ready: false } }]
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: { name: ${ns}, labels: { istio.io/waypoint-for: all } }
spec: { controllerName: weft.test/by-hand }
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: everything, namespace: ${ns} }
spec:
  gatewayClassName: ${ns}
  addresses: [{ type: IPAddress, value: 192.0.2.3 }]
  listeners: [{ name: mesh, port: 15008, protocol: HBONE }]
status: { addresses: [{ type: IPAddress, value: 192.0.2.3 }] }
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: { name: vm, namespace: ${ns}, labels: { app: web } }
spec: { address: 192.0.2.4, weight: 2, locality: r1/z2 }
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: { name: outside, namespace: ${ns}, annotations: { networking.istio.io/traffic-distribution: PreferClose } }
spec:
  hosts: [outside.${ns}.example.com]
  addresses: [192.0.2.10]
  location: MESH_EXTERNAL
  resolution: STATIC
  ports: [{ number: 443, name: tls, protocol: TLS }]
  endpoints: [{ address: 192.0.2.20 }]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: { name: web, namespace: ${ns} }
spec:
  selector: { matchLabels: { app: web } }
  rules: [{ from: [{ source: { principals: [cluster.local/ns/other/sa/client], namespaces: [a] } }] }]
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: { name: ports, namespace: ${ns} }
spec: { mtls: { mode: STRICT } }
`;

/** The objects as manifests: what `kubectl get -o yaml` shows, without what only an API server gives. */
async function asManifests(
  cluster: Cluster,
  objects: readonly TestObject[],
): Promise<TestObject[]> {
  const stored = await Promise.all(objects.map((object) => cluster.get(object)));
  return stored.map(({ metadata, status: _status, ...object }) => {
    const { name, namespace, labels, annotations } = metadata;
    return {
      ...object,
      metadata: {
        name,
        ...(namespace === undefined ? {} : { namespace }),
        ...(labels === undefined ? {} : { labels }),
        ...(annotations === undefined ? {} : { annotations }),
      },
    };
  });
}

/** A control plane that has only manifests. */
async function startWithManifests(
  t: ExecutionContext,
  ca: CaKit,
  rootNamespace: string,
): Promise<{ readonly hosted: TestActor; readonly api: ApiClient }> {
  const socket = join(ca.dir, 'api-2.sock');
  const config = controlPlaneConfig.parse({
    WEFT_LISTEN: '127.0.0.1:0',
    WEFT_STATE_DIR: join(ca.dir, 'manifests'),
    WEFT_CONTROL_PLANE_API_SOCKET: socket,
    POD_NAMESPACE: rootNamespace,
    PILOT_DEBOUNCE_AFTER: '20ms',
    CA_ADDRESS: ca.address(),
    CA_ROOT_CA: ca.bundlePath,
    AUTH_TOKEN: await ca.issuer.mint(accountSubject(rootNamespace, 'istiod')),
    WEFT_TOKEN_JWKS_PATH: join(ca.dir, 'jwks.json'),
    TOKEN_ISSUER: ca.issuer.issuer,
  });
  const hosted = await startActor(t, new ControlPlaneActor(config), 'control-plane');
  return { hosted, api: new ApiClient(socket) };
}

/** Names of all resources of a namespace, with the hashes of their bytes. */
async function resourcesOf(hosted: TestActor, namespace: string): Promise<readonly unknown[]> {
  const shown = [
    ...(await shownAddresses(hosted, namespace)),
    ...(await shownPolicies(hosted, namespace)),
  ];
  return shown.map(({ name, version, content }) => ({ name, version, content }));
}

await kubernetesSuite('same bytes', (test) => {
  test('objects of every kind give the same bytes from an API server and from manifests', async (t, cluster) => {
    const namespace = await cluster.namespace('same');
    const objects: TestObject[] = [
      ...(await cluster.applyText(everyKind(namespace))),
      ...(await cluster.apply(
        service(namespace, 'web', { selector: { app: 'web' } }),
        pod(namespace, 'web-1', { ip: '10.244.1.1', labels: { app: 'web' }, node: namespace }),
        pod(namespace, 'web-2', { ip: '10.244.1.2', labels: { app: 'web' }, ready: false }),
      )),
    ];
    t.teardown(() =>
      cluster.delete(...objects.filter(({ kind }) => kind === 'Node' || kind === 'GatewayClass')),
    );
    const kinds = new Set(objects.map(({ kind }) => kind));
    t.deepEqual(
      KINDS.filter((kind) => !kinds.has(kind)),
      [],
    );
    const plane = await startControlPlane(t, cluster, { rootNamespace: namespace });
    await plane.ready();
    const { hosted, api } = await startWithManifests(t, plane.ca, namespace);
    const manifests = await asManifests(cluster, objects);
    const answer = await api.send('POST', '/apply', {
      documents: manifests.map((object, index) => ({ source: 'test', index, object })),
    });
    t.is(answer.status, 200, JSON.stringify(answer.body));
    await api.run(namespace, 'web-1', ['10.244.1.1']);
    await api.run(namespace, 'web-2', ['10.244.1.2'], false);
    // Either may still hear of objects, its own or those of other tests.
    let wanted: readonly unknown[] = [];
    let shown: readonly unknown[] = [];
    try {
      await until(
        async () => {
          wanted = await resourcesOf(plane.hosted, namespace);
          shown = await resourcesOf(hosted, namespace);
          return wanted.length === 11 && JSON.stringify(shown) === JSON.stringify(wanted);
        },
        { what: 'the same bytes' },
      );
    } catch (error) {
      t.is(wanted.length, 11, 'every kind is seen');
      t.deepEqual(shown, wanted);
      throw error;
    }
    t.true(JSON.stringify(wanted).includes(`${namespace}.example`), 'the MeshConfig counts');
  });
});
