/** Makes the listings of `weft get workloads` and `weft get services` from rows of the `addresses` table. */
import { errorText } from '../errors/mesh-error.ts';
import { serviceKey } from './model.ts';
import type { PortMap } from './model.ts';
import { PackedStore } from './packed-store.ts';
import type { DecodeAddress } from './packed-store.ts';

/** Rows of a table by key. */
export type TableRows = Iterable<readonly [key: string, value: Uint8Array]>;

/** One line of `weft get workloads`. */
export interface WorkloadLine {
  readonly uid: string;
  readonly name: string;
  readonly namespace: string;
  readonly node: string;
  readonly addresses: readonly string[];
  readonly protocol: 'HBONE' | 'TCP';
  readonly serviceAccount: string;
  readonly status: 'HEALTHY' | 'UNHEALTHY';
  /** `namespace/hostname`. */
  readonly services: readonly string[];
  /** Keys of the policies that select it, `namespace/name`. */
  readonly policies: readonly string[];
}

/** One line of `weft get services`. */
export interface ServiceLine {
  readonly namespace: string;
  readonly name: string;
  readonly hostname: string;
  /** `network/ip`, with `/length` after a range. */
  readonly vips: readonly string[];
  /** Service port → target port; 0 when each endpoint names its own. */
  readonly ports: PortMap;
  /** Uids of the workloads that serve it now. */
  readonly endpoints: readonly string[];
}

/** A row that could not be read. */
export interface UnreadableRow {
  readonly key: string;
  readonly reason: string;
}

/** A listing, with the rows that could not be read. */
export interface Listing<Line> {
  readonly lines: readonly Line[];
  readonly unreadable: readonly UnreadableRow[];
}

/** Lists workloads, sorted by namespace, name and uid. */
export function listWorkloads(rows: TableRows, decode: DecodeAddress): Listing<WorkloadLine> {
  const { store, unreadable } = readAddresses(rows, decode);
  const lines: WorkloadLine[] = [];
  for (const resource of store.resources()) {
    if (resource.kind !== 'workload') continue;
    const { workload } = resource;
    lines.push({
      uid: workload.uid,
      name: workload.name,
      namespace: workload.namespace,
      node: workload.node,
      addresses: workload.addresses,
      protocol: workload.tunnelProtocol === 'HBONE' ? 'HBONE' : 'TCP',
      serviceAccount: workload.serviceAccount,
      status: workload.status,
      services: Object.keys(workload.services).sort(),
      policies: workload.authorizationPolicies,
    });
  }
  return { lines: lines.sort(byText((line) => [line.namespace, line.name, line.uid])), unreadable };
}

/** Lists services, sorted by namespace and hostname. */
export function listServices(rows: TableRows, decode: DecodeAddress): Listing<ServiceLine> {
  const { store, unreadable } = readAddresses(rows, decode);
  const lines: ServiceLine[] = [];
  for (const resource of store.resources()) {
    if (resource.kind !== 'service') continue;
    const { service } = resource;
    lines.push({
      namespace: service.namespace,
      name: service.name,
      hostname: service.hostname,
      vips: service.addresses.map(({ network, ip, length }) =>
        length === null ? `${network}/${ip}` : `${network}/${ip}/${length}`,
      ),
      ports: service.ports,
      endpoints: [...(store.service(serviceKey(service))?.endpoints ?? [])].map(
        ({ workload }) => workload.uid,
      ),
    });
  }
  return { lines: lines.sort(byText((line) => [line.namespace, line.hostname])), unreadable };
}

/** Compares by several texts; the first that differs decides. */
export function byText<Line>(textsOf: (line: Line) => readonly string[]) {
  return (left: Line, right: Line): number => {
    const others = textsOf(right);
    for (const [index, text] of textsOf(left).entries()) {
      const other = others[index] ?? '';
      if (text !== other) return text < other ? -1 : 1;
    }
    return 0;
  };
}

function readAddresses(
  rows: TableRows,
  decode: DecodeAddress,
): { store: PackedStore; unreadable: readonly UnreadableRow[] } {
  const store = new PackedStore(decode);
  const unreadable: UnreadableRow[] = [];
  for (const [key, value] of rows) {
    try {
      store.apply(key, value);
    } catch (error) {
      unreadable.push({ key, reason: errorText(error) });
    }
  }
  return { store, unreadable };
}
