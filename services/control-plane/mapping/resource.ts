import { sha256Hex } from '../../../lib/digest/sha256.ts';
import { encodeService, encodeWorkload, resourceName } from '../../../lib/xds/resources/address.ts';
import { encodeAuthorization } from '../../../lib/xds/resources/authorization.ts';
import type { AppProtocols } from '../../../lib/xds/resources/fields.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../../lib/xds/type-urls.ts';
import type { ResourceType } from '../../../lib/xds/type-urls.ts';
import type { Authorization } from '../../../lib/policy/model.ts';
import type { Service, Workload } from '../../../lib/state/model.ts';

/** A resource ready to send, with the keys of its subscriptions. */
export interface MappedResource {
  readonly type: ResourceType;
  readonly name: string;
  /** Hash of the bytes: equal content has equal versions, also after a restart. */
  readonly version: string;
  readonly bytes: Uint8Array;
  /** Other names of the resource: `network/ip`, or `network/ip/length` for a range. */
  readonly aliases: readonly string[];
  /** A workload's node and the keys of its services; empty for other resources. */
  readonly node: string;
  readonly services: readonly string[];
  /** The encoded content, for the admin endpoints. */
  readonly content: Workload | Service | Authorization;
}

/** Length of a version: two versions of one resource do not collide by chance. */
const VERSION_LENGTH = 16;

/** The resource of a workload. */
export function workloadResource(workload: Workload, protocols: AppProtocols): MappedResource {
  const shared = workload.networkMode === 'HOST_NETWORK';
  return {
    ...encoded(ADDRESS_TYPE, resourceName(workload), encodeWorkload(workload, protocols)),
    // The pods of a host share its address, so it is an alias of none of them.
    aliases: shared ? [] : workload.addresses.map((ip) => `${workload.network}/${ip}`),
    node: workload.node,
    services: Object.keys(workload.services),
    content: workload,
  };
}

/** The resource of a service. */
export function serviceResource(service: Service, protocols: AppProtocols): MappedResource {
  return {
    ...encoded(ADDRESS_TYPE, resourceName(service), encodeService(service, protocols)),
    aliases: service.addresses.map(({ network, ip, length }) =>
      length === null ? `${network}/${ip}` : `${network}/${ip}/${length}`,
    ),
    node: '',
    services: [],
    content: service,
  };
}

/** The resource of a policy. */
export function authorizationResource(policy: Authorization): MappedResource {
  return {
    ...encoded(
      AUTHORIZATION_TYPE,
      `${policy.namespace}/${policy.name}`,
      encodeAuthorization(policy),
    ),
    aliases: [],
    node: '',
    services: [],
    content: policy,
  };
}

function encoded(
  type: ResourceType,
  name: string,
  bytes: Uint8Array,
): Pick<MappedResource, 'type' | 'name' | 'version' | 'bytes'> {
  return { type, name, version: sha256Hex(bytes).slice(0, VERSION_LENGTH), bytes };
}
