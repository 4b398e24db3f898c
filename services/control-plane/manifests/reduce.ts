/**
 * Reduces an object of an API server to the fields in use. The API server has validated the object, so unknown fields are
 * dropped, and a field of a wrong type counts as absent. Policies keep their whole spec, because a lost condition would
 * widen access; {@link validateObject} finds what cannot be enforced.
 */
import { StringPool } from '../../../lib/collections/string-pool.ts';
import { present } from '../../../lib/errors/assert.ts';
import { MAX_SHARED_PARTS, MAX_SHARED_TEXTS } from '../limits.ts';
import { kindResources } from './kinds.ts';
import type { Kind, ObjectOf } from './kinds.ts';

/** The fields to keep: a leaf, the fields of an object, the shape of a list's items, or of a map's values. */
type Shape =
  | 'text'
  /** A text that rarely occurs twice, so it is not shared. */
  | 'own text'
  | 'number'
  | 'flag'
  | 'text or number'
  | 'anything'
  | { readonly each: Shape }
  | readonly [Shape]
  | { readonly fields: Readonly<Record<string, Shape>> };

const fields = (shapes: Readonly<Record<string, Shape>>): Shape => ({ fields: shapes });
const texts: Shape = { each: 'text' };

const meta = fields({
  name: 'own text',
  namespace: 'text',
  uid: 'own text',
  labels: texts,
  annotations: texts,
  generation: 'number',
  creationTimestamp: 'text',
  deletionTimestamp: 'text',
});

/** Keeps pods from a node that cannot enrol them yet; operators register nodes with it (docs/spec/cni.md §10). */
export const NOT_READY_TAINT = 'cni.istio.io/not-ready';

/** The annotations that the mesh reads. Others may hold a copy of the whole object. */
const ANNOTATIONS: ReadonlySet<string> = new Set([
  'ambient.istio.io/redirection',
  'ambient.istio.io/waypoint-inbound-binding',
  'gateway.istio.io/service-account',
  'istio.io/dry-run',
  'istio.io/autoRegistrationGroup',
  'istio.io/use-waypoint-canary-weight',
  'networking.istio.io/exportTo',
  'networking.istio.io/traffic-distribution',
]);

const podShape = {
  metadata: fields({
    name: 'own text',
    namespace: 'text',
    uid: 'own text',
    labels: texts,
    annotations: texts,
    deletionTimestamp: 'own text',
    generateName: 'text',
    ownerReferences: [
      fields({ apiVersion: 'text', kind: 'text', name: 'text', controller: 'flag' }),
    ],
  }),
  spec: fields({
    nodeName: 'text',
    serviceAccountName: 'text',
    hostNetwork: 'flag',
    containers: [fields({ name: 'text', ports: [containerPort()] })],
    initContainers: [fields({ name: 'text', restartPolicy: 'text', ports: [containerPort()] })],
  }),
  status: fields({
    phase: 'text',
    podIP: 'own text',
    podIPs: [fields({ ip: 'own text' })],
    conditions: [fields({ type: 'text', status: 'text' })],
  }),
} as const;

function containerPort(): Shape {
  return fields({ name: 'text', containerPort: 'number', protocol: 'text' });
}

const endpointFields = {
  address: 'own text',
  ports: { each: 'number' },
  labels: texts,
  network: 'text',
  locality: 'text',
  weight: 'number',
  serviceAccount: 'text',
} as const;

const conditions: Shape = [
  fields({
    type: 'text',
    status: 'text',
    reason: 'text',
    message: 'text',
    observedGeneration: 'number',
    lastTransitionTime: 'text',
  }),
];

const policyShape = { metadata: meta, spec: 'anything', status: 'anything' } as const;

const SHAPES: Readonly<Record<Kind, Readonly<Record<string, Shape>>>> = {
  Namespace: { metadata: meta },
  Node: { metadata: meta, spec: fields({ taints: 'anything' }) },
  ConfigMap: { metadata: meta, data: { each: 'own text' } },
  ServiceAccount: { metadata: meta },
  Service: {
    metadata: meta,
    spec: fields({
      type: 'text',
      selector: texts,
      ports: [
        fields({
          name: 'text',
          protocol: 'text',
          appProtocol: 'text',
          port: 'number',
          targetPort: 'text or number',
        }),
      ],
      clusterIP: 'own text',
      clusterIPs: ['own text'],
      ipFamilies: ['text'],
      ipFamilyPolicy: 'text',
      internalTrafficPolicy: 'text',
      trafficDistribution: 'text',
      publishNotReadyAddresses: 'flag',
    }),
    status: fields({ conditions }),
  },
  EndpointSlice: {
    metadata: meta,
    addressType: 'text',
    endpoints: [
      fields({
        addresses: ['own text'],
        conditions: fields({ ready: 'flag' }),
        targetRef: fields({ kind: 'text', namespace: 'text', name: 'own text', uid: 'own text' }),
      }),
    ],
    ports: [fields({ name: 'text', protocol: 'text', port: 'number' })],
  },
  Pod: podShape,
  ServiceEntry: {
    metadata: meta,
    spec: fields({
      hosts: ['own text'],
      addresses: ['own text'],
      ports: [fields({ number: 'number', name: 'text', protocol: 'text', targetPort: 'number' })],
      location: 'text',
      resolution: 'text',
      endpoints: [fields(endpointFields)],
      workloadSelector: fields({ labels: texts }),
      exportTo: ['text'],
      subjectAltNames: ['text'],
    }),
    status: fields({ addresses: [fields({ value: 'own text', host: 'own text' })], conditions }),
  },
  WorkloadEntry: { metadata: meta, spec: fields(endpointFields), status: fields({ conditions }) },
  GatewayClass: { metadata: meta, spec: fields({ controllerName: 'text' }) },
  Gateway: {
    metadata: meta,
    spec: fields({
      gatewayClassName: 'text',
      listeners: [
        fields({ name: 'text', port: 'number', protocol: 'text', allowedRoutes: 'anything' }),
      ],
      addresses: [fields({ type: 'text', value: 'own text' })],
    }),
    status: fields({ addresses: [fields({ type: 'text', value: 'own text' })], conditions }),
  },
  AuthorizationPolicy: policyShape,
  PeerAuthentication: policyShape,
};

/** Fields that every later step reads without asking whether they are there. */
const REQUIRED: Partial<Record<Kind, object>> = {
  Pod: { spec: { containers: [] } },
  Service: { spec: {} },
  ServiceEntry: { spec: { hosts: [] } },
  WorkloadEntry: { spec: { address: '' } },
  AuthorizationPolicy: { spec: {} },
  PeerAuthentication: { spec: {} },
  Gateway: { spec: { gatewayClassName: '' } },
  GatewayClass: { spec: { controllerName: '' } },
};

const pool = new StringPool(MAX_SHARED_TEXTS);
/** Parts that the pods of a Deployment have in common, by their JSON. Objects are never modified, so they may share parts. */
const parts = new Map<string, unknown>();

/** The shared copy of a part; the map forgets all parts when it is full. */
function shared<Part>(part: Part): Part {
  if (part === undefined) return part;
  const key = JSON.stringify(part);
  const known = parts.get(key);
  if (known !== undefined) return known as Part;
  if (parts.size >= MAX_SHARED_PARTS) parts.clear();
  parts.set(key, part);
  return part;
}

/** The fields in use of an object as JSON; null for a value without a name, which is no object. */
export function reduce<K extends Kind>(kind: K, json: unknown): ObjectOf<K> | null {
  const kept = keep({ fields: SHAPES[kind] }, json) as Record<string, unknown> | undefined;
  const metadata = kept?.['metadata'] as Record<string, unknown> | undefined;
  if (kept === undefined || typeof metadata?.['name'] !== 'string') return null;
  trimAnnotations(metadata);
  for (const part of ['labels', 'annotations']) {
    if (metadata[part] !== undefined) metadata[part] = shared(metadata[part]);
  }
  if (kind === 'Pod') trimPod(kept);
  if (kind === 'EndpointSlice') trimSlice(kept);
  if (kind === 'Node') trimNode(kept);
  const { group, version } = kindResources[kind];
  const required = (REQUIRED[kind] ?? {}) as Record<string, object>;
  for (const [name, least] of Object.entries(required)) {
    const given = kept[name];
    kept[name] = typeof given === 'object' ? { ...least, ...given } : { ...least };
  }
  return {
    apiVersion: group === '' ? version : `${group}/${version}`,
    kind,
    ...kept,
  } as unknown as ObjectOf<K>;
}

function keep(shape: Shape, value: unknown): unknown {
  if (typeof shape === 'string') return keepLeaf(shape, value);
  if (typeof value !== 'object' || value === null) return undefined;
  if (isList(shape)) {
    if (!Array.isArray(value)) return undefined;
    const items = value.map((item) => keep(shape[0], item)).filter((item) => item !== undefined);
    return items.length === 0 ? undefined : items;
  }
  if (Array.isArray(value)) return undefined;
  return 'each' in shape ? keepMap(shape.each, value) : keepFields(shape.fields, value);
}

function isList(shape: Shape): shape is readonly [Shape] {
  return Array.isArray(shape);
}

function keepMap(shape: Shape, value: object): object | undefined {
  const map: Record<string, unknown> = {};
  let any = false;
  for (const [key, item] of Object.entries(value)) {
    const kept = keep(shape, item);
    if (kept === undefined) continue;
    map[pool.share(key)] = kept;
    any = true;
  }
  return any ? map : undefined;
}

function keepFields(shapes: Readonly<Record<string, Shape>>, value: object): object {
  const source = value as Record<string, unknown>;
  const kept: Record<string, unknown> = {};
  for (const name in shapes) {
    const item = keep(present(shapes[name], 'the name is of the shape'), source[name]);
    if (item !== undefined) kept[name] = item;
  }
  return kept;
}

function keepLeaf(shape: Extract<Shape, string>, value: unknown): unknown {
  switch (shape) {
    case 'text':
      return typeof value === 'string' ? pool.share(value) : undefined;
    case 'own text':
      return typeof value === 'string' ? value : undefined;
    case 'number':
      return typeof value === 'number' ? value : undefined;
    case 'flag':
      return typeof value === 'boolean' ? value : undefined;
    case 'text or number':
      return typeof value === 'string' || typeof value === 'number' ? value : undefined;
    default:
      return value ?? undefined;
  }
}

function trimAnnotations(metadata: Record<string, unknown>): void {
  const given = metadata['annotations'] as Record<string, string> | undefined;
  if (given === undefined) return;
  const read = Object.entries(given).filter(([name]) => ANNOTATIONS.has(name));
  if (read.length === 0) delete metadata['annotations'];
  else metadata['annotations'] = Object.fromEntries(read);
}

const NONE: readonly string[] = [];

interface ReducedContainer {
  readonly restartPolicy?: string;
  readonly ports?: readonly { readonly name?: string }[];
}

/** Drops what the pods of a slice tell better themselves: a slice changes whenever one of them becomes ready. */
function trimSlice(slice: Record<string, unknown>): void {
  const endpoints = slice['endpoints'] as
    | { readonly targetRef?: { kind?: string; name?: string; uid?: string } }[]
    | undefined;
  if (endpoints === undefined) return;
  slice['endpoints'] = endpoints.map((endpoint) => {
    const { kind, name, uid } = endpoint.targetRef ?? {};
    return kind === 'Pod' ? { addresses: NONE, targetRef: { kind, name, uid } } : endpoint;
  });
}

/** Drops the taints of a node unless the leader is to remove one, for which it needs all. */
function trimNode(node: Record<string, unknown>): void {
  const { spec } = node as { spec?: { taints?: readonly { readonly key?: string }[] } };
  if (spec?.taints?.some(({ key }) => key === NOT_READY_TAINT) !== true) delete node['spec'];
}

/** Drops what only some pods need: ports without a name, other conditions than Ready, owners that do not control. */
function trimPod(pod: Record<string, unknown>): void {
  const { metadata, spec, status } = pod as {
    metadata: { ownerReferences?: readonly { controller?: boolean }[] };
    spec?: { containers?: ReducedContainer[]; initContainers?: ReducedContainer[] };
    status?: {
      conditions?: readonly { type?: string }[];
      podIP?: string;
      podIPs?: readonly { ip?: string }[];
    };
  };
  const owners = metadata.ownerReferences?.filter(({ controller }) => controller === true);
  if (owners !== undefined) metadata.ownerReferences = shared(owners);
  if (spec !== undefined) {
    const named = (containers: ReducedContainer[] | undefined): ReducedContainer[] =>
      (containers ?? []).flatMap((container) => {
        const ports = (container.ports ?? []).filter(({ name }) => name !== undefined);
        return ports.length === 0 ? [] : [{ ...container, ports }];
      });
    spec.containers = shared(named(spec.containers));
    const restarting = named(
      spec.initContainers?.filter(({ restartPolicy }) => restartPolicy === 'Always'),
    );
    if (restarting.length > 0) spec.initContainers = shared(restarting);
    else delete spec.initContainers;
  }
  if (status === undefined) return;
  if (status.conditions !== undefined) {
    status.conditions = shared(status.conditions.filter(({ type }) => type === 'Ready'));
  }
  // The first of all addresses is the same text again.
  const first = status.podIPs?.[0]?.ip;
  if (first !== undefined && status.podIP === first) status.podIP = first;
}
