import type { GatewayAddress, Workload } from '../../../lib/state/model.ts';
import { omitEmpty, title } from './shape.ts';

/** Returns a gateway reference in the form of the config dump. */
export function dumpGateway(gateway: GatewayAddress): object {
  const { destination } = gateway;
  const text =
    destination.kind === 'hostname'
      ? `${destination.namespace}/${destination.hostname}`
      : `${destination.network}/${destination.ip}`;
  return { destination: text, hboneMtlsPort: gateway.hboneMtlsPort };
}

/** Returns a workload in the form that istioctl reads (docs/spec/observability.md §4.1). */
export function dumpWorkload(workload: Workload): object {
  const { locality, applicationTunnel } = workload;
  return {
    workloadIps: workload.addresses,
    ...optionalGateway('waypoint', workload.waypoint),
    ...optionalGateway('networkGateway', workload.networkGateway),
    protocol: workload.tunnelProtocol === 'HBONE' ? 'HBONE' : 'TCP',
    networkMode: workload.networkMode === 'HOST_NETWORK' ? 'HostNetwork' : 'Standard',
    ...omitEmpty({ uid: workload.uid }),
    name: workload.name,
    namespace: workload.namespace,
    ...omitEmpty({
      trustDomain: workload.trustDomain,
      serviceAccount: workload.serviceAccount,
      network: workload.network,
      workloadName: workload.workloadName,
      workloadType: workload.workloadType,
      canonicalName: workload.canonicalName,
      canonicalRevision: workload.canonicalRevision,
      hostname: workload.hostname,
      node: workload.node,
      nativeTunnel: workload.nativeTunnel,
      applicationTunnel:
        applicationTunnel === null
          ? null
          : { protocol: applicationTunnel.protocol, port: applicationTunnel.port || null },
      authorizationPolicies: workload.authorizationPolicies,
    }),
    status: title(workload.status),
    clusterId: workload.clusterId,
    ...omitEmpty({
      locality: omitEmpty({ ...locality }),
      services: Object.keys(workload.services).sort(),
    }),
    capacity: workload.capacity,
  };
}

function optionalGateway(name: string, gateway: GatewayAddress | null): object {
  return gateway === null ? {} : { [name]: dumpGateway(gateway) };
}
