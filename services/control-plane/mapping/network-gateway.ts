/** Gateway of class `istio-remote` → gateway of another network (docs/spec/istiod-ambient.md §1.3). Pure. */
import { tryCanonicalIp } from '../../../lib/net/address.ts';
import type { GatewayAddress, Workload } from '../../../lib/state/model.ts';
import type { Gateway } from '../manifests/kinds.ts';
import { namespaceOf } from '../manifests/kinds.ts';
import { bareWorkload } from './bare-workload.ts';
import { NETWORK_LABEL } from './labels.ts';
import type { Mesh } from './mesh.ts';

/** One address of a gateway to a network. */
export interface NetworkGateway {
  readonly uid: string;
  readonly network: string;
  /** IP address in canonical form, or host name. */
  readonly address: string;
  readonly port: number;
  readonly namespace: string;
  readonly serviceAccount: string;
}

const REMOTE_CLASS = 'istio-remote';
const ACCOUNT_ANNOTATION = 'gateway.istio.io/service-account';

/** The addresses of a gateway; undefined for a Gateway that leads to no other network. */
export function networkGateways(gateway: Gateway): readonly NetworkGateway[] | undefined {
  const { labels, annotations, name } = gateway.metadata;
  const network = labels?.[NETWORK_LABEL] ?? '';
  const listener = gateway.spec.listeners?.find(({ protocol }) => protocol === 'HBONE');
  if (gateway.spec.gatewayClassName !== REMOTE_CLASS || network === '' || listener === undefined) {
    return undefined;
  }
  const addresses = (gateway.status?.addresses ?? []).filter(
    ({ type }) => type === undefined || type === 'IPAddress' || type === 'Hostname',
  );
  return addresses.map(({ value }) => ({
    uid: `NetworkGateway/${network}/${value}/${listener.port}`,
    network,
    address: tryCanonicalIp(value) ?? value,
    port: listener.port,
    namespace: namespaceOf(gateway),
    serviceAccount: annotations?.[ACCOUNT_ANNOTATION] ?? `${name}-${REMOTE_CLASS}`,
  }));
}

/** The reference of a workload to a gateway. */
export function gatewayAddress(gateway: NetworkGateway): GatewayAddress {
  const { address, network, namespace, port } = gateway;
  return {
    destination:
      tryCanonicalIp(address) === null
        ? { kind: 'hostname', namespace, hostname: address }
        : { kind: 'address', network, ip: address },
    hboneMtlsPort: port,
  };
}

/** The workload that the references lead to. */
export function gatewayWorkload(gateway: NetworkGateway, mesh: Mesh): Workload {
  const isIp = tryCanonicalIp(gateway.address) !== null;
  return bareWorkload(mesh, {
    uid: gateway.uid,
    name: gateway.uid,
    namespace: gateway.namespace,
    serviceAccount: gateway.serviceAccount,
    network: gateway.network,
    addresses: isIp ? [gateway.address] : [],
    hostname: isIp ? '' : gateway.address,
    tunnelProtocol: 'HBONE',
  });
}
