import type { QueueCounts } from '../../../lib/bus/contract.ts';
import { withMeshBus } from '../mesh-bus.ts';
import type { ResourceKind } from './kinds.ts';

/** `weft get queues`: the work plane of the mesh and of every node. */
export const kind: ResourceKind<QueueCounts> = {
  header: ['NAME', 'WAITING', 'ACTIVE', 'DELAYED', 'FAILED', 'DEAD'],
  row: (line) => [
    line.name,
    String(line.waiting),
    String(line.active),
    String(line.delayed),
    String(line.failed),
    String(line.dead),
  ],
  read: async ({ paths, plan }) => {
    const nodes = plan.nodes.map(({ name }) => ({ node: name }));
    const lines = await withMeshBus(paths, (bus) => bus.queueCounts(['mesh', ...nodes]));
    return { lines, warnings: [] };
  },
};
