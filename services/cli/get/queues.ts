import type { QueueCounts } from '../../../lib/bus/contract.ts';
import type { ResourceKind } from './kinds.ts';

/** `weft get queues`: the work plane of the mesh and of every node. */
export const kind: ResourceKind<QueueCounts> = {
  columns: ['name', 'waiting', 'active', 'delayed', 'failed', 'dead'],
  read: (mesh) => mesh.queues(),
};
