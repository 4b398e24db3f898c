import { listServices } from '../../../lib/state/listing.ts';
import type { ServiceLine } from '../../../lib/state/listing.ts';
import { decodeAddress } from '../../../lib/xds/resources/address.ts';
import { readTable, withMeshBus } from '../mesh-bus.ts';
import type { ResourceKind } from './kinds.ts';
import { unreadableRows } from './unreadable.ts';

/** `weft get services`: what the mesh knows of them. */
export const kind: ResourceKind<ServiceLine> = {
  header: ['NAMESPACE', 'NAME', 'HOSTNAME', 'VIPS', 'PORTS', 'ENDPOINTS'],
  row: (line) => [
    line.namespace,
    line.name,
    line.hostname,
    line.vips.join(',') || '-',
    Object.entries(line.ports)
      .map(([port, target]) => `${port}→${target === 0 ? 'named' : target}`)
      .join(',') || '-',
    String(line.endpoints.length),
  ],
  read: async (mesh) => {
    const rows = await withMeshBus(mesh.paths, (bus) => readTable(bus, 'addresses', 'mesh'));
    const { lines, unreadable } = listServices(rows, decodeAddress);
    return { lines, warnings: unreadableRows('addresses', unreadable) };
  },
};
