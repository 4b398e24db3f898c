import type { z } from 'zod';
import { namespaceSchema, podSchema, serviceAccountSchema, serviceSchema } from './core.ts';
import { serviceEntrySchema, workloadEntrySchema } from './networking.ts';
import { authorizationPolicySchema, peerAuthenticationSchema } from './security.ts';

/** Kinds the control plane takes, with the schema of each. */
export const kindSchemas = {
  Namespace: namespaceSchema,
  ServiceAccount: serviceAccountSchema,
  Service: serviceSchema,
  Pod: podSchema,
  ServiceEntry: serviceEntrySchema,
  WorkloadEntry: workloadEntrySchema,
  AuthorizationPolicy: authorizationPolicySchema,
  PeerAuthentication: peerAuthenticationSchema,
} as const;

/** A kind of object. */
export type Kind = keyof typeof kindSchemas;

/** An object of the given kind as its schema gives it. */
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

/** All kinds, in the order in which they are listed. */
export const KINDS = Object.keys(kindSchemas) as readonly Kind[];

/** Narrows text to a {@link Kind}. */
export function isKind(text: unknown): text is Kind {
  return typeof text === 'string' && Object.hasOwn(kindSchemas, text);
}

/** True for every kind that lives in a namespace. */
export function isNamespaced(kind: Kind): boolean {
  return kind !== 'Namespace';
}

/** `Kind/namespace/name`, the key of an object; the namespace of a Namespace is empty. */
export function objectKey(kind: Kind, namespace: string, name: string): string {
  return `${kind}/${namespace}/${name}`;
}

/** The key of an object, see {@link objectKey}. */
export function keyOf(object: KubeObject): string {
  return objectKey(object.kind, namespaceOf(object), object.metadata.name);
}

/** The namespace an object lives in; empty for a Namespace. */
export function namespaceOf(object: KubeObject): string {
  return object.kind === 'Namespace' ? '' : (object.metadata.namespace ?? 'default');
}

/** An object by kind and name; the namespace of a Namespace is empty. */
export interface ObjectName {
  readonly kind: Kind;
  readonly namespace: string;
  readonly name: string;
}

/** The name of an object. */
export function nameOf(object: KubeObject): ObjectName {
  return { kind: object.kind, namespace: namespaceOf(object), name: object.metadata.name };
}
