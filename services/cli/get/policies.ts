import { listPolicies } from '../../../lib/policy/listing.ts';
import type { PolicyLine } from '../../../lib/policy/listing.ts';
import { decodeAuthorization } from '../../../lib/xds/resources/authorization.ts';
import { readTable, unreadableRows, withMeshBus } from '../mesh-bus.ts';
import type { ResourceKind } from './kinds.ts';

/** `weft get policies`: the policies of the mesh and their states. */
export const kind: ResourceKind<PolicyLine> = {
  columns: [
    ['NAMESPACE', (line) => line.namespace],
    ['NAME', (line) => line.name],
    ['ACTION', (line) => line.action],
    ['SCOPE', (line) => line.scope],
    ['STATE', (line) => line.state],
    ['REASON', (line) => line.reason],
  ],
  read: async (mesh) => {
    const tables = await withMeshBus(mesh.paths, async (bus) => ({
      authorizations: await readTable(bus, 'authorizations', 'mesh'),
      rejections: await readTable(bus, 'rejections', 'mesh'),
      programs: await readTable(bus, 'programs', 'mesh'),
    }));
    const { lines, unreadable } = listPolicies(tables, decodeAuthorization);
    return { lines, warnings: unreadableRows('authorizations', unreadable) };
  },
};
