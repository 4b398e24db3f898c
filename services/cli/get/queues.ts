import type { QueueCounts } from '../../../lib/bus/contract.ts';
import type { ResourceKind } from './kinds.ts';

/** `weft get queues`: the work plane of the mesh and of every node. */
export const kind: ResourceKind<QueueCounts> = {
  columns: [
    ['NAME', (line) => line.name],
    ['WAITING', (line) => String(line.waiting)],
    ['ACTIVE', (line) => String(line.active)],
    ['DELAYED', (line) => String(line.delayed)],
    ['FAILED', (line) => String(line.failed)],
    ['DEAD', (line) => String(line.dead)],
  ],
  read: (mesh) => mesh.queues(),
};
