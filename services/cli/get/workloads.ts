import { listWorkloads } from '../../../lib/state/listing.ts';
import type { WorkloadLine } from '../../../lib/state/listing.ts';
import { decodeAddress } from '../../../lib/xds/resources/address.ts';
import { readTable, withMeshBus } from '../mesh-bus.ts';
import type { ResourceKind } from './kinds.ts';
import { unreadableRows } from './unreadable.ts';

/** `weft get workloads`: what the mesh knows of them. */
export const kind: ResourceKind<WorkloadLine> = {
  header: [
    'NAMESPACE',
    'NAME',
    'NODE',
    'ADDRESSES',
    'PROTOCOL',
    'SERVICE ACCOUNT',
    'STATUS',
    'SERVICES',
    'POLICIES',
  ],
  row: (line) => [
    line.namespace,
    line.name,
    line.node || '-',
    line.addresses.join(',') || '-',
    line.protocol,
    line.serviceAccount,
    line.status,
    line.services.join(',') || '-',
    line.policies.join(',') || '-',
  ],
  read: async (mesh) => {
    const rows = await withMeshBus(mesh.paths, (bus) => readTable(bus, 'addresses', 'mesh'));
    const { lines, unreadable } = listWorkloads(rows, decodeAddress);
    return { lines, warnings: unreadableRows('addresses', unreadable) };
  },
};
