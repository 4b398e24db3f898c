/** The objects of a large cluster as an API server writes them, page by page. */
import type { Kind } from '../../../services/control-plane/manifests/kinds.ts';

const PODS_PER_DEPLOYMENT = 20;
const DEPLOYMENTS_PER_NAMESPACE = 50;
const PODS_PER_NODE = 100;
const ENDPOINTS_PER_SLICE = 100;
const TEAMS = 5;

/** A cluster of this many pods in Deployments of twenty, each with a Service. */
export class BigMesh {
  readonly #pods: number;
  readonly #deployments: number;

  constructor(pods: number) {
    this.#pods = pods;
    this.#deployments = Math.ceil(pods / PODS_PER_DEPLOYMENT);
  }

  /** Pages of every object. */
  *pages(size: number): Iterable<readonly [Kind, string]> {
    const namespaces = Math.ceil(this.#deployments / DEPLOYMENTS_PER_NAMESPACE);
    yield* paged('Namespace', namespaces, size, (index) => ({ metadata: { name: `ns-${index}` } }));
    yield* paged('Node', Math.ceil(this.#pods / PODS_PER_NODE), size, (index) => ({
      metadata: {
        name: `node-${index}`,
        labels: {
          'topology.kubernetes.io/region': 'region-1',
          'topology.kubernetes.io/zone': `zone-${index % 3}`,
          'kubernetes.io/hostname': `node-${index}`,
        },
      },
    }));
    yield* paged('Service', this.#deployments, size, (index) => service(index));
    yield* paged('Pod', this.#pods, size, (index) => podObject(index, 0, true));
    yield* paged('EndpointSlice', this.#deployments, size, (index) => slice(index));
  }

  /** A page of one pod. */
  pod(index: number, { ready }: { readonly ready: boolean }): string {
    return JSON.stringify([podObject(index, 0, ready)]);
  }

  /** A Service of the pods of one team in the first namespaces' place: all its Deployments are in one namespace. */
  wideService(): string {
    const object = { ...service(0), metadata: { name: 'wide', namespace: 'ns-0', uid: 'wide' } };
    const spec = { ...object.spec, clusterIPs: ['10.255.255.1'], selector: { team: 'team-0' } };
    return JSON.stringify([{ ...object, spec }]);
  }

  rootStrict(mode: string): string {
    const metadata = { name: 'default', namespace: 'istio-system' };
    return JSON.stringify([{ metadata, spec: { mtls: { mode } } }]);
  }

  policy(): string {
    const metadata = { name: 'team', namespace: 'ns-0' };
    const selector = { matchLabels: { team: 'team-0' } };
    const rules = [{ from: [{ source: { namespaces: ['ns-1'] } }] }];
    return JSON.stringify([{ metadata, spec: { selector, rules } }]);
  }

  /** Pages with a new form of a tenth of the pods. */
  churn(round: number, size: number): Iterable<readonly [Kind, string]> {
    return paged('Pod', Math.ceil(this.#pods / 10), size, (index) =>
      podObject((index * 10 + round) % this.#pods, round + 1, true),
    );
  }
}

function* paged(
  kind: Kind,
  count: number,
  size: number,
  make: (index: number) => object,
): Iterable<readonly [Kind, string]> {
  for (let start = 0; start < count; start += size) {
    const items = Array.from({ length: Math.min(size, count - start) }, (_, item) =>
      make(start + item),
    );
    yield [kind, JSON.stringify(items)];
  }
}

/** The first namespace holds a fifth of the pods, the others share the rest. */
function namespaceOf(deployment: number): string {
  return deployment % TEAMS === 0
    ? 'ns-0'
    : `ns-${Math.floor(deployment / DEPLOYMENTS_PER_NAMESPACE)}`;
}

function ipOf(high: number, index: number): string {
  return `10.${high + (index >> 16)}.${(index >> 8) & 255}.${index & 255}`;
}

function service(index: number): { metadata: object; spec: object } {
  return {
    metadata: {
      name: `app-${index}`,
      namespace: namespaceOf(index),
      uid: `service-${index}`,
      creationTimestamp: '2026-01-01T00:00:00Z',
    },
    spec: {
      type: 'ClusterIP',
      clusterIP: ipOf(96, index),
      clusterIPs: [ipOf(96, index)],
      ipFamilies: ['IPv4'],
      ipFamilyPolicy: 'SingleStack',
      ports: [{ name: 'http', protocol: 'TCP', port: 80, targetPort: 'http' }],
      selector: { app: `app-${index}` },
    },
  };
}

function podObject(index: number, version: number, ready: boolean): object {
  const deployment = Math.floor(index / PODS_PER_DEPLOYMENT);
  const hash = (deployment * 2_654_435_761).toString(16).slice(0, 9);
  const conditions = ['PodScheduled', 'Initialized', 'ContainersReady', 'Ready'].map((type) => ({
    type,
    status: type === 'Ready' && !ready ? 'False' : 'True',
    lastProbeTime: null,
    lastTransitionTime: '2026-01-01T00:00:00Z',
  }));
  return {
    metadata: {
      name: `app-${deployment}-${hash}-${index.toString(36)}`,
      generateName: `app-${deployment}-${hash}-`,
      namespace: namespaceOf(deployment),
      uid: `00000000-0000-4000-8000-${String(index).padStart(12, '0')}`,
      creationTimestamp: '2026-01-01T00:00:00Z',
      labels: {
        app: `app-${deployment}`,
        team: `team-${deployment % TEAMS}`,
        version: `v${version}`,
        'pod-template-hash': hash,
      },
      annotations: { 'ambient.istio.io/redirection': 'enabled', note: 'x'.repeat(200) },
      ownerReferences: [
        {
          apiVersion: 'apps/v1',
          kind: 'ReplicaSet',
          name: `app-${deployment}-${hash}`,
          uid: `replicas-${deployment}`,
          controller: true,
        },
      ],
      managedFields: [
        {
          manager: 'kubelet',
          operation: 'Update',
          apiVersion: 'v1',
          fieldsType: 'FieldsV1',
          fieldsV1: { 'f:metadata': { [`f:${'x'.repeat(480)}`]: {} } },
        },
      ],
    },
    spec: {
      nodeName: `node-${Math.floor(index / PODS_PER_NODE)}`,
      serviceAccountName: `app-${deployment}`,
      containers: [
        {
          name: 'app',
          image: 'registry.example/app:v1',
          env: [{ name: 'NOTE', value: 'x'.repeat(200) }],
          ports: [{ name: 'http', containerPort: 8080, protocol: 'TCP' }],
        },
      ],
    },
    status: {
      phase: 'Running',
      podIP: ipOf(200, index),
      podIPs: [{ ip: ipOf(200, index) }],
      conditions,
    },
  };
}

function slice(deployment: number): object {
  const first = deployment * PODS_PER_DEPLOYMENT;
  const endpoints = Array.from(
    { length: Math.min(PODS_PER_DEPLOYMENT, ENDPOINTS_PER_SLICE) },
    (_, item) => {
      const { metadata } = podObject(first + item, 0, true) as {
        metadata: { name: string; uid: string; namespace: string };
      };
      const { name, uid, namespace } = metadata;
      return {
        addresses: [ipOf(200, first + item)],
        conditions: { ready: true, serving: true, terminating: false },
        targetRef: { kind: 'Pod', name, uid, namespace },
      };
    },
  );
  return {
    metadata: {
      name: `app-${deployment}-slice`,
      namespace: namespaceOf(deployment),
      labels: { 'kubernetes.io/service-name': `app-${deployment}` },
    },
    addressType: 'IPv4',
    ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
    endpoints,
  };
}
