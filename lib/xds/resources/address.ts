/** istio.workload.Address: bytes ⇄ the model, with the defaults and refusals of docs/spec/control.md §3.1. */
import { istio } from '#proto/resources.js';
import type { Service, Workload } from '../../state/model.ts';
import { serviceKey } from '../../state/model.ts';
import { encodeKept } from './kept-bytes.ts';
import { decodeService, serviceMessage } from './service.ts';
import type { AppProtocols } from './fields.ts';
import { decodeMessage, refusal } from './fields.ts';
import { decodeWorkload, workloadMessage } from './workload.ts';

/** A decoded Address. */
export type DecodedAddress =
  | { readonly kind: 'workload'; readonly workload: Workload }
  | { readonly kind: 'service'; readonly service: Service };

/** Decodes one Address. Throws XDS_RESOURCE that names the field and the reason. */
export function decodeAddress(bytes: Uint8Array): DecodedAddress {
  const message = decodeMessage('istio.workload.Address', () =>
    istio.workload.Address.decode(bytes),
  );
  if (message.type === 'workload' && message.workload) {
    return { kind: 'workload', workload: decodeWorkload(message.workload) };
  }
  if (message.type === 'service' && message.service) {
    return { kind: 'service', service: decodeService(message.service) };
  }
  throw refusal('address', 'must hold a workload or a service');
}

/** The bytes of a workload's Address; equal workloads give equal bytes. */
export function encodeWorkload(workload: Workload, protocols?: AppProtocols): Uint8Array {
  const message = { workload: workloadMessage(workload, protocols) };
  return encodeKept((writer) => istio.workload.Address.encode(message, writer));
}

/**
 * The bytes of a service's Address; equal services give equal bytes. `ingress` is true when gateways send the service's traffic
 * through its waypoint; the model leaves it out, because node proxies do not read it.
 */
export function encodeService(
  service: Service,
  protocols?: AppProtocols,
  ingress = false,
): Uint8Array {
  const plain = serviceMessage(service, protocols);
  const message = { service: ingress ? { ...plain, ingressUseWaypoint: true } : plain };
  return encodeKept((writer) => istio.workload.Address.encode(message, writer));
}

/** The xDS name: a workload's uid, or a service's `namespace/hostname`. */
export function resourceName(resource: Workload | Service): string {
  return 'uid' in resource ? resource.uid : serviceKey(resource);
}
