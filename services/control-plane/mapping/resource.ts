import { sha256Hex } from '../../../lib/digest/sha256.ts';
import { encodeService, encodeWorkload, resourceName } from '../../../lib/xds/resources/address.ts';
import { encodeAuthorization } from '../../../lib/xds/resources/authorization.ts';
import type { AppProtocols } from '../../../lib/xds/resources/fields.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../../lib/xds/type-urls.ts';
import type { ResourceType } from '../../../lib/xds/type-urls.ts';
import type { Authorization } from '../../../lib/policy/model.ts';
import type { Service, Workload } from '../../../lib/state/model.ts';

/** A resource ready to send, and what it can be asked for by. */
export interface MappedResource {
  readonly type: ResourceType;
  readonly name: string;
  /** Hash of the bytes: equal content has equal versions, also after a restart. */
  readonly version: string;
  readonly bytes: Uint8Array;
  /** `network/ip`, with `/length` behind it for a range; names the resource also answers to. */
  readonly aliases: readonly string[];
  /** Of a workload: its node and the keys of its services; else empty. */
  readonly node: string;
  readonly services: readonly string[];
  /** What was encoded, for people who look. */
  readonly content: Workload | Service | Authorization;
}

/** Enough of the hash that two versions of one resource never meet by chance. */
const VERSION_LENGTH = 16;

/** A workload as a resource. */
export function workloadResource(workload: Workload, protocols: AppProtocols): MappedResource {
  const shared = workload.networkMode === 'HOST_NETWORK';
  return {
    ...encoded(ADDRESS_TYPE, resourceName(workload), encodeWorkload(workload, protocols)),
    // An address shared by the pods of a host names none of them.
    aliases: shared ? [] : workload.addresses.map((ip) => `${workload.network}/${ip}`),
    node: workload.node,
    services: Object.keys(workload.services),
    content: workload,
  };
}

/** A service as a resource. */
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

/** A policy as a resource. */
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
