import type { ProcessStatus } from '../local-mesh/managed-process.ts';
import type { MeshStatus } from '../local-mesh/supervisor-api.ts';
import { textTable } from './text-table.ts';

/** The status of a mesh for people. */
export function statusLines(status: MeshStatus): string[] {
  const state = status.ready ? 'ready' : `waiting for ${status.waiting.join(', ') || 'the start'}`;
  return [
    `mesh ${status.mesh}: ${state} (supervisor ${status.supervisor.pid}, ${status.runDirectory})`,
    ...waypointLine(status),
    '',
    ...textTable(
      ['NODE', 'ADDRESS', 'PODS', 'NETNS'],
      status.nodes.map((node) => [
        node.name,
        node.addresses[0] ?? '',
        String(node.pods),
        node.netns,
      ]),
    ),
    '',
    ...textTable(
      ['ACTOR', 'NODE', 'PID', 'GEN', 'STATE', 'RESTARTS', 'UP'],
      [...status.actors.map(actorRow), redisRow(status)],
    ),
  ];
}

function waypointLine({ waypointBypass }: MeshStatus): string[] {
  if (waypointBypass === null) return [];
  const fate = waypointBypass === 'deny' ? 'refused' : 'let in and counted';
  return [
    `traffic that goes around a waypoint is ${fate} (WEFT_WAYPOINT_BYPASS=${waypointBypass})`,
  ];
}

function actorRow(actor: ProcessStatus): string[] {
  const waits = actor.pending.length === 0 ? '' : ` (${actor.pending.join(', ')})`;
  return [
    actor.name,
    actor.node ?? '-',
    actor.pid === null ? '-' : String(actor.pid),
    actor.state === 'external' ? '-' : String(actor.generation),
    `${actor.state}${waits}`,
    String(actor.restarts),
    duration(actor.uptimeSeconds),
  ];
}

function redisRow({ redis }: MeshStatus): string[] {
  return ['redis', '-', String(redis.pid ?? '-'), '-', redis.state, String(redis.restarts), '-'];
}

function two(value: number): string {
  return String(value).padStart(2, '0');
}

/** `42s`, `3m10s`, `2h05m`. */
export function duration(seconds: number): string {
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)}m${two(seconds % 60)}s`;
  return `${Math.floor(seconds / 3_600)}h${two(Math.floor((seconds % 3_600) / 60))}m`;
}
