import { listPolicies } from '../../../lib/policy/listing.ts';
import type { PolicyLine } from '../../../lib/policy/listing.ts';
import { decodeAuthorization } from '../../../lib/xds/resources/authorization.ts';
import { unreadableRows } from '../unreadable-rows.ts';
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
    const tables = await mesh.tables(['authorizations', 'rejections', 'programs']);
    const { lines, unreadable } = listPolicies(tables, decodeAuthorization);
    return { lines, warnings: unreadableRows('authorizations', unreadable) };
  },
};
