/** Kinds that are read from the tables of the mesh state. */
import { listPolicies } from '../../../lib/policy/listing.ts';
import type { PolicyLine } from '../../../lib/policy/listing.ts';
import { listServices, listWorkloads } from '../../../lib/state/listing.ts';
import type { ServiceLine, UnreadableRow, WorkloadLine } from '../../../lib/state/listing.ts';
import { decodeAddress } from '../../../lib/xds/resources/address.ts';
import { decodeAuthorization } from '../../../lib/xds/resources/authorization.ts';
import type { ResourceKind } from './kinds.ts';

/** `weft get workloads`: the workloads in the mesh state. */
export const workloads: ResourceKind<WorkloadLine> = {
  columns: [
    'namespace',
    'name',
    'node',
    'addresses',
    'protocol',
    'serviceAccount',
    'status',
    'services',
    'policies',
  ],
  read: async (mesh) => {
    const { addresses: rows } = await mesh.tables(['addresses']);
    const { lines, unreadable } = listWorkloads(rows, decodeAddress);
    return { lines, warnings: unreadableRows('addresses', unreadable) };
  },
};

/** `weft get services`: the services in the mesh state. */
export const services: ResourceKind<ServiceLine> = {
  columns: [
    'namespace',
    'name',
    'hostname',
    'vips',
    ['PORTS', portsText],
    ['ENDPOINTS', (line) => String(line.endpoints.length)],
  ],
  read: async (mesh) => {
    const { addresses: rows } = await mesh.tables(['addresses']);
    const { lines, unreadable } = listServices(rows, decodeAddress);
    return { lines, warnings: unreadableRows('addresses', unreadable) };
  },
};

/** `weft get policies`: the policies of the mesh and their states. */
export const policies: ResourceKind<PolicyLine> = {
  columns: ['namespace', 'name', 'action', 'scope', 'state', 'reason'],
  read: async (mesh) => {
    const tables = await mesh.tables(['authorizations', 'rejections', 'programs']);
    const { lines, unreadable } = listPolicies(tables, decodeAuthorization);
    return { lines, warnings: unreadableRows('authorizations', unreadable) };
  },
};

function portsText({ ports }: ServiceLine): string {
  return Object.entries(ports)
    .map(([port, target]) => `${port}→${target === 0 ? 'named' : target}`)
    .join(',');
}

/** A warning for each row that could not be read. */
function unreadableRows(table: string, rows: readonly UnreadableRow[]): readonly string[] {
  return rows.map(({ key, reason }) => `row ${key} of ${table} cannot be read: ${reason}`);
}
