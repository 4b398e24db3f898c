/** Kinds that the control plane is asked for. */
import type { Nack } from '../../../lib/xds/nack-log.ts';
import { askConditions, askNacks } from '../../local-mesh/mesh-client.ts';
import type { ConditionLine } from '../../local-mesh/mesh-client.ts';
import type { ResourceKind } from './kinds.ts';

/** `weft get conditions`: the status conditions that the control plane finds for its objects. */
export const conditions: ResourceKind<ConditionLine> = {
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

/** `weft get nacks`: responses of the control plane that a client refused, oldest first. */
export const nacks: ResourceKind<Nack> = {
  columns: [
    ['AT', (line) => line.at],
    ['NODE', (line) => line.node],
    ['TYPE', (line) => line.type.slice(line.type.lastIndexOf('.') + 1)],
    ['REASON', (line) => line.reason],
  ],
  read: async ({ servers }) => ({ lines: await askNacks(servers), warnings: [] }),
};
