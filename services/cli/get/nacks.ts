import type { Nack } from '../../../lib/xds/nack-log.ts';
import { askNacks } from '../../local-mesh/mesh-client.ts';
import type { ResourceKind } from './kinds.ts';

/** `weft get nacks`: responses of the control plane that a client refused, oldest first. */
export const kind: ResourceKind<Nack> = {
  columns: [
    ['AT', (line) => line.at],
    ['NODE', (line) => line.node],
    ['TYPE', (line) => line.type.slice(line.type.lastIndexOf('.') + 1)],
    ['REASON', (line) => line.reason],
  ],
  read: async ({ servers }) => ({ lines: await askNacks(servers), warnings: [] }),
};
