import type { ConnectionRecord } from '../../../workers/listener/protocol.ts';
import type { ServedPod } from '../pods/served-pod.ts';

/** The `workloadState` of the config dump (spec/inpod.md §8): each pod, whether it is up, its connections. */
export function dumpWorkloadState(
  pods: ReadonlyMap<string, ServedPod>,
  connections: readonly ConnectionRecord[],
): object {
  const byPod = Map.groupBy(connections, (connection) => connection.podUid);
  return Object.fromEntries(
    [...pods].map(([uid, { info, state }]) => [
      uid,
      {
        state,
        ...(state === 'Up' ? { connections: dumpConnections(byPod.get(uid) ?? []) } : {}),
        info: {
          name: info.name,
          namespace: info.namespace,
          serviceAccount: info.serviceAccount,
        },
      },
    ]),
  );
}

function dumpConnections(connections: readonly ConnectionRecord[]): object {
  const of = (direction: ConnectionRecord['direction']) =>
    connections
      .filter((connection) => connection.direction === direction)
      .map((connection) => ({
        src: connection.source,
        // Inbound, upstream writes the host a trusted waypoint forwarded, which this proxy does not record.
        originalDst: direction === 'inbound' ? null : connection.destination,
        // Inbound, the application's address, not the port of the tunnel the connection came in by.
        actualDst: direction === 'inbound' ? connection.destination : connection.actualDestination,
        protocol: connection.protocol,
      }));
  return { inbound: of('inbound'), outbound: of('outbound') };
}
