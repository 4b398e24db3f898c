import type * as z from 'zod';
import { compareText } from '../../../lib/collections/compare.ts';
import {
  configMapSchema,
  namespaceSchema,
  nodeSchema,
  podSchema,
  serviceAccountSchema,
  serviceSchema,
} from './core.ts';
import { endpointSliceSchema } from './endpoint-slice.ts';
import { gatewayClassSchema, gatewaySchema } from './gateway.ts';
import { serviceEntrySchema, workloadEntrySchema } from './networking.ts';
import { authorizationPolicySchema, peerAuthenticationSchema } from './security.ts';

/** The kinds that the control plane accepts, with their schemas. */
export const kindSchemas = {
  Namespace: namespaceSchema,
  Node: nodeSchema,
  ConfigMap: configMapSchema,
  ServiceAccount: serviceAccountSchema,
  Service: serviceSchema,
  EndpointSlice: endpointSliceSchema,
  Pod: podSchema,
  ServiceEntry: serviceEntrySchema,
  WorkloadEntry: workloadEntrySchema,
  GatewayClass: gatewayClassSchema,
  Gateway: gatewaySchema,
  AuthorizationPolicy: authorizationPolicySchema,
  PeerAuthentication: peerAuthenticationSchema,
} as const;

/** Where an API server serves a kind. */
export interface KindResource {
  /** Empty for the core group. */
  readonly group: string;
  readonly version: string;
  /** The name in paths and in RBAC rules. */
  readonly plural: string;
  readonly namespaced: boolean;
  /** True for a kind that a CustomResourceDefinition brings: a cluster may lack it. */
  readonly custom: boolean;
}

const ISTIO_NETWORKING = 'networking.istio.io';
const ISTIO_SECURITY = 'security.istio.io';
const GATEWAY_API = 'gateway.networking.k8s.io';

/** The resource of each kind, in the version that every supported cluster serves. */
export const kindResources: Readonly<Record<Kind, KindResource>> = {
  Namespace: core('namespaces', false),
  Node: core('nodes', false),
  ConfigMap: core('configmaps', true),
  ServiceAccount: core('serviceaccounts', true),
  Service: core('services', true),
  EndpointSlice: {
    group: 'discovery.k8s.io',
    version: 'v1',
    plural: 'endpointslices',
    namespaced: true,
    custom: false,
  },
  Pod: core('pods', true),
  ServiceEntry: custom(ISTIO_NETWORKING, 'serviceentries', true),
  WorkloadEntry: custom(ISTIO_NETWORKING, 'workloadentries', true),
  GatewayClass: custom(GATEWAY_API, 'gatewayclasses', false),
  Gateway: custom(GATEWAY_API, 'gateways', true),
  AuthorizationPolicy: custom(ISTIO_SECURITY, 'authorizationpolicies', true),
  PeerAuthentication: custom(ISTIO_SECURITY, 'peerauthentications', true),
};

function core(plural: string, namespaced: boolean): KindResource {
  return { group: '', version: 'v1', plural, namespaced, custom: false };
}

function custom(group: string, plural: string, namespaced: boolean): KindResource {
  return { group, version: 'v1', plural, namespaced, custom: true };
}

/** A kind of object. */
export type Kind = keyof typeof kindSchemas;

/** An object of the kind, as its schema parses it. */
export type ObjectOf<K extends Kind> = z.output<(typeof kindSchemas)[K]>;

/** An object of any kind. */
export type KubeObject = { [K in Kind]: ObjectOf<K> }[Kind];

/** A Pod. */
export type Pod = ObjectOf<'Pod'>;
/** A Service. */
export type KubeService = ObjectOf<'Service'>;
/** A ServiceEntry. */
export type ServiceEntry = ObjectOf<'ServiceEntry'>;
/** A WorkloadEntry. */
export type WorkloadEntry = ObjectOf<'WorkloadEntry'>;
/** An AuthorizationPolicy. */
export type AuthorizationPolicy = ObjectOf<'AuthorizationPolicy'>;
/** A PeerAuthentication. */
export type PeerAuthentication = ObjectOf<'PeerAuthentication'>;
/** A Namespace. */
export type NamespaceObject = ObjectOf<'Namespace'>;
/** A Node. */
export type KubeNode = ObjectOf<'Node'>;
/** An EndpointSlice. */
export type EndpointSlice = ObjectOf<'EndpointSlice'>;
/** A Gateway. */
export type Gateway = ObjectOf<'Gateway'>;

/** All kinds, in the order of listings. */
export const KINDS = Object.keys(kindSchemas) as readonly Kind[];

/** Narrows text to a {@link Kind}. */
export function isKind(text: unknown): text is Kind {
  return typeof text === 'string' && Object.hasOwn(kindSchemas, text);
}

/** True for the kinds whose objects are in a namespace. */
export function isNamespaced(kind: Kind): boolean {
  return kindResources[kind].namespaced;
}

/** `Kind/namespace/name`, the key of an object; the namespace is empty for kinds without one. */
export function objectKey(kind: Kind, namespace: string, name: string): string {
  return `${kind}/${namespace}/${name}`;
}

/** The key of an object, see {@link objectKey}. */
export function keyOf(object: KubeObject): string {
  return objectKey(object.kind, namespaceOf(object), object.metadata.name);
}

/** The namespace of an object; empty for kinds without one. */
export function namespaceOf(object: KubeObject): string {
  return isNamespaced(object.kind) ? (object.metadata.namespace ?? 'default') : '';
}

/** An object by kind and name; the namespace is empty for kinds without one. */
export interface ObjectName {
  readonly kind: Kind;
  readonly namespace: string;
  readonly name: string;
}

/** The name of an object. */
export function nameOf(object: KubeObject): ObjectName {
  return { kind: object.kind, namespace: namespaceOf(object), name: object.metadata.name };
}

/** Compares by age, oldest first, and by name among objects of one age. */
export function byAge(left: KubeObject, right: KubeObject): number {
  const [first, second] = [left.metadata, right.metadata];
  const age = compareText(first.creationTimestamp ?? '', second.creationTimestamp ?? '');
  return age === 0 ? compareText(first.name, second.name) : age;
}
