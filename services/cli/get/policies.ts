import { listPolicies } from '../../../lib/policy/listing.ts';
import type { PolicyLine } from '../../../lib/policy/listing.ts';
import { decodeAuthorization } from '../../../lib/xds/resources/authorization.ts';
import { readTable, withMeshBus } from '../mesh-bus.ts';
import type { ResourceKind } from './kinds.ts';
import { unreadableRows } from './unreadable.ts';

/** `weft get policies`: the policies of the mesh and what has become of them. */
export const kind: ResourceKind<PolicyLine> = {
  header: ['NAMESPACE', 'NAME', 'ACTION', 'SCOPE', 'STATE', 'REASON'],
  row: (line) => [
    line.namespace,
    line.name,
    line.action ?? '-',
    line.scope ?? '-',
    line.state,
    line.reason || '-',
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
