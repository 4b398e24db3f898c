import type { istio } from '#proto/weft.js';
import { parseIp } from '../../net/address.ts';
import type { GatewayAddress } from '../../state/model.ts';
import { ipText, portNumber, refusal } from './wire.ts';

/** Decodes an optional gateway reference. Throws XDS_RESOURCE when it is there but names nothing. */
export function decodeGateway(
  path: string,
  message: istio.workload.GatewayAddress.$Properties | null | undefined,
): GatewayAddress | null {
  if (message === null || message === undefined) return null;
  const hboneMtlsPort = portNumber(`${path}.hbone_mtls_port`, message.hboneMtlsPort ?? 0);
  // A decoded message holds the last variant that was on the wire in `destination`.
  const { hostname, address } = message;
  const chosen = 'destination' in message ? message.destination : undefined;
  if (chosen === 'hostname' && hostname) {
    return {
      destination: {
        kind: 'hostname',
        namespace: hostname.namespace ?? '',
        hostname: hostname.hostname ?? '',
      },
      hboneMtlsPort,
    };
  }
  if (chosen === 'address' && address) {
    return {
      destination: {
        kind: 'address',
        network: address.network ?? '',
        ip: ipText(`${path}.address.address`, address.address ?? new Uint8Array()),
      },
      hboneMtlsPort,
    };
  }
  throw refusal(path, 'must name a hostname or an address');
}

/** The inverse of {@link decodeGateway}. */
export function gatewayMessage(gateway: GatewayAddress): istio.workload.GatewayAddress.$Properties {
  const { destination, hboneMtlsPort } = gateway;
  return destination.kind === 'hostname'
    ? {
        hostname: { namespace: destination.namespace, hostname: destination.hostname },
        hboneMtlsPort,
      }
    : {
        address: { network: destination.network, address: parseIp(destination.ip).bytes },
        hboneMtlsPort,
      };
}
