import { listWorkloads } from '../../../lib/state/listing.ts';
import type { WorkloadLine } from '../../../lib/state/listing.ts';
import { decodeAddress } from '../../../lib/xds/resources/address.ts';
import { unreadableRows } from '../unreadable-rows.ts';
import type { ResourceKind } from './kinds.ts';

/** `weft get workloads`: the workloads in the mesh state. */
export const kind: ResourceKind<WorkloadLine> = {
  columns: [
    ['NAMESPACE', (line) => line.namespace],
    ['NAME', (line) => line.name],
    ['NODE', (line) => line.node],
    ['ADDRESSES', (line) => line.addresses.join(',')],
    ['PROTOCOL', (line) => line.protocol],
    ['SERVICE ACCOUNT', (line) => line.serviceAccount],
    ['STATUS', (line) => line.status],
    ['SERVICES', (line) => line.services.join(',')],
    ['POLICIES', (line) => line.policies.join(',')],
  ],
  read: async (mesh) => {
    const { addresses: rows } = await mesh.tables(['addresses']);
    const { lines, unreadable } = listWorkloads(rows, decodeAddress);
    return { lines, warnings: unreadableRows('addresses', unreadable) };
  },
};
