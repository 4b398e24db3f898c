import { listServices } from '../../../lib/state/listing.ts';
import type { ServiceLine } from '../../../lib/state/listing.ts';
import { decodeAddress } from '../../../lib/xds/resources/address.ts';
import { unreadableRows } from '../unreadable-rows.ts';
import type { ResourceKind } from './kinds.ts';

/** `weft get services`: the services in the mesh state. */
export const kind: ResourceKind<ServiceLine> = {
  columns: [
    ['NAMESPACE', (line) => line.namespace],
    ['NAME', (line) => line.name],
    ['HOSTNAME', (line) => line.hostname],
    ['VIPS', (line) => line.vips.join(',')],
    ['PORTS', portsText],
    ['ENDPOINTS', (line) => String(line.endpoints.length)],
  ],
  read: async (mesh) => {
    const { addresses: rows } = await mesh.tables(['addresses']);
    const { lines, unreadable } = listServices(rows, decodeAddress);
    return { lines, warnings: unreadableRows('addresses', unreadable) };
  },
};

function portsText({ ports }: ServiceLine): string {
  return Object.entries(ports)
    .map(([port, target]) => `${port}→${target === 0 ? 'named' : target}`)
    .join(',');
}
