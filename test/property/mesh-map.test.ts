/** The map after any sequence of changes is the map of the final objects. */
import test from 'ava';
import * as fc from 'fast-check';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../lib/xds/type-urls.ts';
import { MeshMap } from '../../services/control-plane/mapping/mesh-map.ts';
import { reduce } from '../../services/control-plane/manifests/reduce.ts';
import type { Kind, KubeObject } from '../../services/control-plane/manifests/kinds.ts';
import { finish } from '../support/mesh-objects.ts';

const settings = {
  clusterId: 'Kubernetes',
  trustDomain: 'cluster.local',
  domain: 'cluster.local',
  policies: { rootNamespace: 'root', dryRun: false },
  allowFromWaypoint: true,
};

const ns = fc.constantFrom('root', 'a', 'b');
const name = fc.constantFrom('x', 'y');
const labels = fc.dictionary(
  fc.constantFrom('app', 'v', 'istio.io/use-waypoint', 'gateway.networking.k8s.io/gateway-name'),
  fc.constantFrom('x', 'y'),
  { maxKeys: 3 },
);
const selector = fc.dictionary(fc.constantFrom('app', 'v'), fc.constantFrom('x', 'y'), {
  maxKeys: 2,
});
const created = fc.constantFrom('2026-01-01T00:00:00Z', '2026-01-02T00:00:00Z');
const mode = fc.constantFrom('UNSET', 'PERMISSIVE', 'STRICT', 'DISABLE');
const host = fc.constantFrom('x.a.svc.cluster.local', 'ext.example', '*.example');

/** The parts of an object apart from its name, by kind. */
const BODIES: Partial<Record<Kind, fc.Arbitrary<object>>> = {
  Namespace: fc.record({}),
  Node: fc.record({}),
  Pod: fc.record({
    spec: fc.record({ nodeName: name, serviceAccountName: name, containers: fc.constant([]) }),
    status: fc.record({
      phase: fc.constantFrom('Running', 'Failed'),
      podIPs: fc.constantFrom([], [{ ip: '10.0.0.1' }]),
      conditions: fc.constantFrom([], [{ type: 'Ready', status: 'True' }]),
    }),
  }),
  Service: fc.record({
    spec: fc.record(
      {
        selector,
        ports: fc.constant([{ name: 'http', port: 80, targetPort: 8080 }]),
        clusterIPs: fc.constantFrom(['10.96.0.1'], ['None']),
        type: fc.constantFrom('ClusterIP', 'ExternalName'),
      },
      { requiredKeys: ['ports'] },
    ),
  }),
  EndpointSlice: fc.record({
    addressType: fc.constant('IPv4'),
    ports: fc.constant([{ name: 'http', port: 8081, protocol: 'TCP' }]),
    endpoints: fc.array(
      fc.oneof(
        fc.constant({ addresses: ['10.9.0.1'] }),
        name.map((pod) => ({
          addresses: ['10.0.0.1'],
          targetRef: { kind: 'Pod', name: pod, uid: pod },
        })),
      ),
      { maxLength: 2 },
    ),
  }),
  ServiceEntry: fc.record({
    spec: fc.record(
      {
        hosts: fc.uniqueArray(host, { minLength: 1 }),
        resolution: fc.constantFrom('NONE', 'DNS', 'STATIC'),
        ports: fc.constant([{ number: 80, name: 'http' }]),
        exportTo: fc.constantFrom(['.'], ['~'], ['*']),
        workloadSelector: fc.record({ labels: selector }),
        endpoints: fc.constant([{ address: '10.8.0.1' }]),
      },
      { requiredKeys: ['hosts', 'ports'] },
    ),
  }),
  WorkloadEntry: fc.record({ spec: fc.record({ address: fc.constant('10.7.0.1'), labels }) }),
  Gateway: fc.record({
    spec: fc.record({
      gatewayClassName: fc.constantFrom('istio-waypoint', 'istio-remote'),
      listeners: fc.constantFrom(
        [{ name: 'mesh', port: 15_008, protocol: 'HBONE' }],
        [
          {
            name: 'mesh',
            port: 15_008,
            protocol: 'HBONE',
            allowedRoutes: { namespaces: { from: 'All' } },
          },
        ],
      ),
    }),
    status: fc.record({
      addresses: fc.constantFrom([], [{ type: 'IPAddress', value: '10.6.0.1' }]),
    }),
  }),
  AuthorizationPolicy: fc.record({
    spec: fc.record(
      {
        selector: fc.record({ matchLabels: selector }),
        action: fc.constantFrom('ALLOW', 'DENY', 'AUDIT'),
        rules: fc.constantFrom([{}], [{ to: [{ operation: { ports: ['80'] } }] }]),
        targetRefs: fc.constant([{ kind: 'Service', name: 'x' }]),
      },
      { requiredKeys: ['rules'] },
    ),
  }),
  PeerAuthentication: fc.record({
    spec: fc.record(
      { selector: fc.record({ matchLabels: selector }), mtls: fc.record({ mode }) },
      { requiredKeys: [] },
    ),
  }),
};

const objects = fc.oneof(
  ...Object.entries(BODIES).map(([kind, body]) =>
    fc.tuple(ns, name, labels, created, body).map(([namespace, own, given, time, rest]) => {
      const object = reduce(kind as Kind, {
        metadata: {
          name: kind === 'Namespace' ? namespace : own,
          namespace,
          uid: own,
          creationTimestamp: time,
          labels: {
            ...given,
            'kubernetes.io/service-name': own,
            'topology.istio.io/network': given['v'] ?? '',
          },
        },
        ...rest,
      });
      if (object === null) throw new Error('an object has a name');
      return object;
    }),
  ),
);
const step = fc.record({
  object: objects,
  gone: fc.boolean(),
  refresh: fc.constantFrom('no', 'yes'),
});

function contentOf(map: MeshMap): Record<string, string> {
  const all = ([ADDRESS_TYPE, AUTHORIZATION_TYPE] as const).flatMap((type) => [
    ...map.of(type).values(),
  ]);
  return Object.fromEntries([
    ...all.map((item) => [item.name, item.version]),
    ...[...map.statuses()].map((status) => [
      `${status.kind}/${status.namespace}/${status.name}`,
      JSON.stringify(status),
    ]),
  ]);
}

function newMap(): MeshMap {
  return new MeshMap(settings, (key, error) => {
    throw new Error(`${key} cannot be mapped`, { cause: error });
  });
}

test('any sequence of changes gives what a mapping of the final objects gives, and tells what changed', (t) => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
      const map = newMap();
      const held = new Map<string, KubeObject>();
      const told = new Map<string, string>();
      const follow = (): void => {
        for (const [type, names] of finish(map.steps())) {
          for (const changed of names) {
            const version = map.get(type, changed)?.version;
            t.not(told.get(changed), version);
            if (version === undefined) told.delete(changed);
            else told.set(changed, version);
          }
        }
      };
      for (const { object, gone, refresh } of steps) {
        const { metadata, kind } = object;
        const key = `${kind}/${metadata.namespace ?? ''}/${metadata.name}`;
        const before = held.get(key) ?? null;
        map.note([{ before, after: gone ? null : object }]);
        if (gone) held.delete(key);
        else held.set(key, object);
        if (refresh === 'yes') follow();
      }
      follow();
      const fresh = newMap();
      fresh.note([...held.values()].map((after) => ({ before: null, after })));
      finish(fresh.steps());
      t.deepEqual(contentOf(map), contentOf(fresh));
      const resources = ([ADDRESS_TYPE, AUTHORIZATION_TYPE] as const).flatMap((type) => [
        ...map.of(type).values(),
      ]);
      t.deepEqual(
        Object.fromEntries(told),
        Object.fromEntries(resources.map((item) => [item.name, item.version])),
      );
    }),
    { numRuns: 200 },
  );
});
