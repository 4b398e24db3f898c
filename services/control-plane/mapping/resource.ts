import { sha256Prefix } from '../../../lib/digest/sha256.ts';
import { encodeService, encodeWorkload, resourceName } from '../../../lib/xds/resources/address.ts';
import { encodeAuthorization } from '../../../lib/xds/resources/authorization.ts';
import type { AppProtocols } from '../../../lib/xds/resources/fields.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../../lib/xds/type-urls.ts';
import type { ResourceType } from '../../../lib/xds/type-urls.ts';
import type { ServedResource } from '../../../lib/xds/wire.ts';
import type { Authorization } from '../../../lib/policy/model.ts';
import type { Service, Workload } from '../../../lib/state/model.ts';

/** A resource ready to send, with the keys of its subscriptions. Equal bytes have equal versions, also after a restart. */
export interface MappedResource extends ServedResource {
  readonly type: ResourceType;
}

/** Bytes of a version: two versions of one resource do not collide by chance. */
const VERSION_BYTES = 8;
const NONE: readonly string[] = [];

type SubscriptionKeys = Pick<MappedResource, 'aliases' | 'node' | 'services' | 'isService'>;

const NO_KEYS: SubscriptionKeys = { aliases: NONE, node: '', services: NONE, isService: false };

/** The resource of a workload. */
export function workloadResource(workload: Workload, protocols: AppProtocols): MappedResource {
  const shared = workload.networkMode === 'HOST_NETWORK';
  const services = Object.keys(workload.services);
  return encoded(ADDRESS_TYPE, resourceName(workload), encodeWorkload(workload, protocols), {
    // The pods of a host share its address, so it is an alias of none of them.
    aliases: shared ? NONE : workload.addresses.map((ip) => `${workload.network}/${ip}`),
    node: workload.node,
    services: services.length === 0 ? NONE : services,
    isService: false,
  });
}

/** The resource of a service. `ingress` is true when gateways send its traffic through its waypoint. */
export function serviceResource(
  service: Service,
  protocols: AppProtocols,
  ingress: boolean,
): MappedResource {
  const bytes = encodeService(service, protocols, ingress);
  return encoded(ADDRESS_TYPE, resourceName(service), bytes, {
    ...NO_KEYS,
    aliases: service.addresses.map(({ network, ip, length }) =>
      length === null ? `${network}/${ip}` : `${network}/${ip}/${length}`,
    ),
    isService: true,
  });
}

/** The resource of a policy. */
export function authorizationResource(policy: Authorization): MappedResource {
  const name = `${policy.namespace}/${policy.name}`;
  return encoded(AUTHORIZATION_TYPE, name, encodeAuthorization(policy), NO_KEYS);
}

/** True for resources that no client can tell apart. */
export function sameResource(left: MappedResource, right: MappedResource): boolean {
  return left.name === right.name && left.version === right.version;
}

/** Like {@link sameResource}, for lists. */
export function sameResources(
  left: readonly MappedResource[],
  right: readonly MappedResource[],
): boolean {
  if (left.length !== right.length) return false;
  return left.every((resource, index) => {
    const other = right[index];
    return other !== undefined && sameResource(resource, other);
  });
}

function encoded(
  type: ResourceType,
  name: string,
  bytes: Uint8Array,
  keys: SubscriptionKeys,
): MappedResource {
  const { aliases, node, services, isService } = keys;
  const version = sha256Prefix(bytes, VERSION_BYTES);
  // One literal: an object that is put together keeps a second one for the later fields, of each of a hundred thousand.
  return { type, name, version, bytes, aliases, node, services, isService };
}
