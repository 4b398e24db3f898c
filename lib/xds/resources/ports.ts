import type { istio } from '#proto/weft.js';
import type { PortMap } from '../../state/model.ts';
import { portNumber } from './wire.ts';

/** What an application speaks on a port, as istio.workload.AppProtocol. */
export type AppProtocol = 'UNKNOWN' | 'HTTP11' | 'HTTP2' | 'GRPC';

/**
 * Application protocols by service key and service port. The model leaves them out, as the data plane
 * does not read them; a control plane may still send them for waypoints.
 */
export type AppProtocols = (serviceKey: string, servicePort: number) => AppProtocol;

const APP_PROTOCOL_NUMBERS: Readonly<Record<AppProtocol, istio.workload.AppProtocol>> = {
  UNKNOWN: 0,
  HTTP11: 1,
  HTTP2: 2,
  GRPC: 3,
};

/** Decodes a list of ports; of several with one service port the last counts. Throws XDS_RESOURCE. */
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
      ...(protocol === 'UNKNOWN' ? {} : { appProtocol: APP_PROTOCOL_NUMBERS[protocol] }),
    };
  });
}
