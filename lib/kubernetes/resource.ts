/** Names of Kubernetes resources and their paths. */

/** A resource of the API. */
export interface ResourceType {
  /** `''` is the core group. */
  readonly group: string;
  /** Versions in the order of preference; the first that the API server serves is used. */
  readonly versions: readonly [string, ...string[]];
  /** The name in paths, e.g. `pods`. */
  readonly plural: string;
  readonly namespaced: boolean;
}

/** One place below a resource. */
export interface ResourcePlace {
  /** The version; the first one of the resource when left out. */
  readonly version?: string;
  /** Null or left out: all namespaces, or a resource without namespaces. */
  readonly namespace?: string | null;
  readonly name?: string;
  /** `status` or `token`, for example. */
  readonly subresource?: string;
}

/** Returns the path of a resource or of one of its objects. */
export function resourcePath(type: ResourceType, place: ResourcePlace = {}): string {
  const version = place.version ?? type.versions[0];
  const parts = type.group === '' ? ['api', version] : ['apis', type.group, version];
  if (type.namespaced && place.namespace !== null && place.namespace !== undefined) {
    parts.push('namespaces', place.namespace);
  }
  parts.push(type.plural);
  if (place.name !== undefined) parts.push(place.name);
  if (place.subresource !== undefined) parts.push(place.subresource);
  return `/${parts.map(encodeURIComponent).join('/')}`;
}

/** Returns the `apiVersion` of a resource's objects. */
export function apiVersionOf(type: ResourceType, version: string = type.versions[0]): string {
  return type.group === '' ? version : `${type.group}/${version}`;
}

/** Returns the name of a resource for people: `pods`, `gateways.gateway.networking.k8s.io`. */
export function resourceName(type: ResourceType): string {
  return type.group === '' ? type.plural : `${type.plural}.${type.group}`;
}
