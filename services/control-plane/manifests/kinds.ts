import type { z } from 'zod';
import { compareText } from '../../../lib/collections/compare.ts';
import { namespaceSchema, podSchema, serviceAccountSchema, serviceSchema } from './core.ts';
import { serviceEntrySchema, workloadEntrySchema } from './networking.ts';
import { authorizationPolicySchema, peerAuthenticationSchema } from './security.ts';

/** The kinds that the control plane accepts, with their schemas. */
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

/** All kinds, in the order of listings. */
export const KINDS = Object.keys(kindSchemas) as readonly Kind[];

/** Narrows text to a {@link Kind}. */
export function isKind(text: unknown): text is Kind {
  return typeof text === 'string' && Object.hasOwn(kindSchemas, text);
}

/** True for the kinds whose objects are in a namespace. */
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

/** The namespace of an object; empty for a Namespace. */
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

/** Compares by age, oldest first, and by name among objects of one age. */
export function byAge(left: KubeObject, right: KubeObject): number {
  const [first, second] = [left.metadata, right.metadata];
  const age = compareText(first.creationTimestamp ?? '', second.creationTimestamp ?? '');
  return age === 0 ? compareText(first.name, second.name) : age;
}
