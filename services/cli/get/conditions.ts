import { askConditions } from '../../local-mesh/mesh-client.ts';
import type { ConditionLine } from '../../local-mesh/mesh-client.ts';
import type { ResourceKind } from './kinds.ts';

/** `weft get conditions`: the status conditions that the control plane finds for its objects. */
export const kind: ResourceKind<ConditionLine> = {
  columns: [
    ['KIND', (line) => line.kind],
    ['NAMESPACE', (line) => line.namespace],
    ['NAME', (line) => line.name],
    ['CONDITION', (line) => line.type],
    ['STATUS', (line) => line.status],
    ['REASON', (line) => line.reason],
    ['MESSAGE', (line) => line.message],
  ],
  read: async ({ servers }) => ({ lines: await askConditions(servers), warnings: [] }),
};
