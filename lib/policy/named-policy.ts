import type { Authorization } from './model.ts';

/** A policy under the resource name it is known by; the name, not the policy's own fields, is its key. */
export interface NamedPolicy {
  /** xDS resource name, `namespace/name`. */
  readonly key: string;
  readonly policy: Authorization;
}

/** Turns the bytes of istio.security.Authorization into a policy; throws XDS_RESOURCE. */
export type DecodeAuthorization = (bytes: Uint8Array) => Authorization;

/** The namespace in a resource name: the part before its first slash, or the whole name without one. */
export function namespaceOfKey(key: string): string {
  const slash = key.indexOf('/');
  return slash === -1 ? key : key.slice(0, slash);
}
