/** Fields that several resources share, and the refusals that name a field. */
import type { istio } from '#proto/resources.js';
import { canonicalIpOf, parseIp } from '../../net/address.ts';
import { MeshError, errorText } from '../../errors/mesh-error.ts';
import type { GatewayAddress, PortMap } from '../../state/model.ts';

const HIGHEST_PORT = 65_535;

/** The application protocol of a port, as istio.workload.AppProtocol. */
export type AppProtocol = 'UNKNOWN' | 'HTTP11' | 'HTTP2' | 'GRPC' | 'TCP' | 'TLS';

/**
 * Application protocols by service key and service port. The model leaves them out because the data plane does not
 * read them; a control plane sends them for waypoints.
 */
export type AppProtocols = (serviceKey: string, servicePort: number) => AppProtocol;

const APP_PROTOCOLS: readonly AppProtocol[] = ['UNKNOWN', 'HTTP11', 'HTTP2', 'GRPC', 'TCP', 'TLS'];

/** The XDS_RESOURCE error for a field; `path` as in `workload.addresses[0]`. */
export function refusal(path: string, reason: string): MeshError {
  return new MeshError('XDS_RESOURCE', `${path}: ${reason}`, { detail: { field: path } });
}

/** Runs a protobuf decoder; its errors become an XDS_RESOURCE that names the message. */
export function decodeMessage<T>(name: string, decode: () => T): T {
  try {
    return decode();
  } catch (error) {
    throw new MeshError('XDS_RESOURCE', `not a valid ${name}: ${errorText(error)}`, {
      cause: error,
    });
  }
}

/** The word for an enum number: its index in `words`. Throws XDS_RESOURCE for a number that is missing or null there. */
export function enumWord<Word extends string>(
  path: string,
  words: readonly (Word | null)[],
  value: number,
): Word {
  const word = words[value];
  if (word === undefined || word === null) throw refusal(path, `unknown value ${value}`);
  return word;
}

/** A port, 0 to 65535. Throws XDS_RESOURCE. */
export function portNumber(path: string, value: number): number {
  if (value > HIGHEST_PORT) throw refusal(path, `${value} is above ${HIGHEST_PORT}`);
  return value;
}

/** The canonical text of an address. Throws XDS_RESOURCE unless it has 4 or 16 bytes. */
export function ipText(path: string, bytes: Uint8Array): string {
  if (bytes.length !== 4 && bytes.length !== 16) {
    throw refusal(path, `an IP address has 4 or 16 bytes, not ${bytes.length}`);
  }
  return canonicalIpOf(bytes);
}

/** Decodes a list of ports. The last entry of a service port counts. Throws XDS_RESOURCE. */
export function decodePorts(
  path: string,
  ports: readonly istio.workload.Port.$Properties[] | null | undefined,
): PortMap {
  const map: Record<number, number> = {};
  for (const [index, port] of (ports ?? []).entries()) {
    const servicePort = portNumber(`${path}[${index}].service_port`, port.servicePort ?? 0);
    map[servicePort] = portNumber(`${path}[${index}].target_port`, port.targetPort ?? 0);
  }
  return map;
}

/** The inverse of {@link decodePorts}, in ascending order of service ports. */
export function portMessages(
  ports: PortMap,
  key: string,
  protocols?: AppProtocols,
): istio.workload.Port.$Properties[] {
  return Object.entries(ports).map(([servicePort, targetPort]) => {
    const protocol = protocols?.(key, Number(servicePort)) ?? 'UNKNOWN';
    return {
      servicePort: Number(servicePort),
      ...(targetPort === 0 ? {} : { targetPort }),
      ...(protocol === 'UNKNOWN' ? {} : { appProtocol: APP_PROTOCOLS.indexOf(protocol) }),
    };
  });
}

/** Decodes an optional gateway reference. Throws XDS_RESOURCE when it is present but names nothing. */
export function decodeGateway(
  path: string,
  message: istio.workload.GatewayAddress.$Properties | null | undefined,
): GatewayAddress | null {
  if (message === null || message === undefined) return null;
  const hboneMtlsPort = portNumber(`${path}.hbone_mtls_port`, message.hboneMtlsPort ?? 0);
  // In a decoded message `destination` names the last variant on the wire.
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
