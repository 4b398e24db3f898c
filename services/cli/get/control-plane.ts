/** Kinds that the control plane is asked for. */
import type { Nack } from '../../../lib/xds/nack-log.ts';
import { askConditions, askNacks } from '../../local-mesh/mesh-client.ts';
import type { ConditionLine } from '../../local-mesh/mesh-client.ts';
import type { ResourceKind } from './kinds.ts';

/** `weft get conditions`: the status conditions that the control plane finds for its objects. */
export const conditions: ResourceKind<ConditionLine> = {
  columns: [
    'kind',
    'namespace',
    'name',
    ['CONDITION', (line) => line.type],
    'status',
    'reason',
    'message',
  ],
  read: async ({ servers }) => ({ lines: await askConditions(servers), warnings: [] }),
};

/** `weft get nacks`: responses of the control plane that a client refused, oldest first. */
export const nacks: ResourceKind<Nack> = {
  columns: [
    'at',
    'node',
    ['TYPE', (line) => line.type.slice(line.type.lastIndexOf('.') + 1)],
    'reason',
  ],
  read: async ({ servers }) => ({ lines: await askNacks(servers), warnings: [] }),
};
