import type { ConnectionRecord } from '../../../workers/listener/protocol/connections.ts';
import { DUMP_OBJECTS_PER_MESSAGE } from '../limits.ts';
import type { ServedPod } from '../pods/served-pod.ts';

/**
 * Yields the `workloadState` of the config dump (docs/spec/inpod.md §8): each pod with its state and its connections, as JSON in
 * texts of some hundred connections.
 */
export function* workloadStateTexts(
  pods: ReadonlyMap<string, ServedPod>,
  connections: readonly ConnectionRecord[],
): Generator<string> {
  const byPod = Map.groupBy(connections, (connection) => connection.podUid);
  yield '{';
  let first = true;
  for (const [uid, { info, state }] of pods) {
    yield `${first ? '' : ','}${JSON.stringify(uid)}:{"state":${JSON.stringify(state)},`;
    first = false;
    if (state === 'Up') yield* connectionTexts(byPod.get(uid) ?? []);
    const { name, namespace, serviceAccount } = info;
    yield `"info":${JSON.stringify({ name, namespace, serviceAccount })}}`;
  }
  yield '}';
}

function* connectionTexts(connections: readonly ConnectionRecord[]): Generator<string> {
  yield '"connections":{"inbound":[';
  yield* listTexts(connections, 'inbound');
  yield '],"outbound":[';
  yield* listTexts(connections, 'outbound');
  yield ']},';
}

function* listTexts(
  connections: readonly ConnectionRecord[],
  direction: ConnectionRecord['direction'],
): Generator<string> {
  const wanted = connections.filter((connection) => connection.direction === direction);
  for (let start = 0; start < wanted.length; start += DUMP_OBJECTS_PER_MESSAGE) {
    const part = wanted.slice(start, start + DUMP_OBJECTS_PER_MESSAGE).map(dumpConnection);
    yield `${start === 0 ? '' : ','}${JSON.stringify(part).slice(1, -1)}`;
  }
}

/** Returns a connection under the names that istioctl parses. */
function dumpConnection(connection: ConnectionRecord): object {
  const inbound = connection.direction === 'inbound';
  return {
    src: connection.source,
    originalDst: inbound ? connection.forwardedHost : connection.destination,
    // Inbound, this is the application's address and not the port of the tunnel.
    actualDst: inbound ? connection.destination : connection.actualDestination,
    protocol: connection.protocol,
  };
}
