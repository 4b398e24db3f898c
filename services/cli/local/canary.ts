/** The proof that a mesh works: a connection between two nodes that the receiving proxy carried over HBONE. */
import { once } from 'node:events';
import { Socket } from 'node:net';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { closeFd, openNetns } from '../../../lib/linux/netns.ts';
import { openTcp } from '../../../lib/linux/sockets.ts';
import { askConnections } from './mesh-client.ts';
import type { MeshPaths } from './mesh-paths.ts';
import type { PodLine } from './supervisor-api.ts';

/** Where the default servers speak HTTP. */
const CANARY_PORT = 8_080;
const ANSWER_TIMEOUT_MS = 5_000;

/** Two pods between which a canary can fly. */
export interface CanaryRoute {
  readonly from: PodLine;
  readonly to: PodLine;
}

/** Enrolled pods on different nodes, or on one where there is only one node; null when there are no two. */
export function canaryRoute(
  pods: readonly PodLine[],
  enrolled: ReadonlySet<string>,
): CanaryRoute | null {
  const usable = pods.filter((pod) => enrolled.has(pod.uid) && pod.phase === 'Running');
  for (const from of usable) {
    const to = usable.find((pod) => pod.node !== from.node);
    if (to !== undefined) return { from, to };
  }
  const [from, to] = usable;
  return from === undefined || to === undefined ? null : { from, to };
}

/**
 * Sends one request along the route and asks the receiving node's proxy for the connection. Throws
 * UPSTREAM_CONNECT or UPSTREAM_TIMEOUT when it is not answered, STATE_CONFLICT when it did not use HBONE.
 */
export async function flyCanary(paths: MeshPaths, { from, to }: CanaryRoute): Promise<void> {
  const netnsFd = openNetns(from.netns);
  let socket: Socket;
  try {
    socket = new Socket({ fd: openTcp({ netnsFd, family: 4, mark: 0, noDelay: true }) });
  } finally {
    closeFd(netnsFd);
  }
  const route = `${from.namespace}/${from.name} to ${to.namespace}/${to.name}`;
  const signal = AbortSignal.timeout(ANSWER_TIMEOUT_MS);
  try {
    socket.connect(CANARY_PORT, to.ip);
    await once(socket, 'connect', { signal });
    socket.write(`GET / HTTP/1.1\r\nHost: ${to.name}\r\n\r\n`);
    await Promise.race([
      once(socket, 'data', { signal }),
      once(socket, 'end', { signal }).then(() => Promise.reject(new Error('closed unanswered'))),
    ]);
    const records = await askConnections(paths, to.node);
    const carried = records.some(
      (record) =>
        record.direction === 'inbound' &&
        record.protocol === 'HBONE' &&
        record.podUid === to.uid &&
        record.source.startsWith(`${from.ip}:`),
    );
    if (!carried) {
      throw new MeshError('STATE_CONFLICT', `the canary from ${route} did not use HBONE`);
    }
  } catch (error) {
    if (error instanceof MeshError) throw error;
    throw new MeshError('UPSTREAM_CONNECT', `the canary from ${route} got no answer`, {
      cause: error,
    });
  } finally {
    socket.destroy();
  }
}
