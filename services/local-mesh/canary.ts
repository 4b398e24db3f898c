/** Proves that a mesh works by a connection between two nodes that the receiving proxy carried over HBONE. */
import { once } from 'node:events';
import { Socket, createServer } from 'node:net';
import type { Server } from 'node:net';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { closeFd, openNetns } from '../../lib/linux/netns.ts';
import { listenTcp, openTcp } from '../../lib/linux/sockets.ts';
import { askConnections, localServers } from './mesh-client.ts';
import type { MeshPaths } from './mesh-paths.ts';
import type { PodLine } from './supervisor-api.ts';

const ANSWER_TIMEOUT_MS = 5_000;

/** The two pods of a canary connection. */
export interface CanaryRoute {
  readonly from: PodLine;
  readonly to: PodLine;
}

/** Chooses two enrolled pods on different nodes, or on the only node. Null when there are no such pods. */
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

/** The part of the proof that is missing for lack of pods; null when nothing is missing. */
export function canaryLack(route: CanaryRoute | null, nodes: number): string | null {
  if (route === null) return 'no canary connection was made: fewer than two pods are enrolled';
  if (nodes < 2 || route.from.node !== route.to.node) return null;
  return `the canary connection stayed on ${route.from.node}: no other node has an enrolled pod`;
}

/**
 * Opens a connection along the route and asks the receiving node's proxy for it. The connection goes to a listener of the
 * canary's own, so the pod needs no application. Throws UPSTREAM_CONNECT when nothing comes through, STATE_CONFLICT when
 * the connection did not use HBONE.
 */
export async function flyCanary(paths: MeshPaths, route: CanaryRoute): Promise<void> {
  const { from, to } = route;
  const name = `the canary from ${from.namespace}/${from.name} to ${to.namespace}/${to.name}`;
  const nest = await openNest(to);
  const socket = openSocket(from);
  const signal = AbortSignal.timeout(ANSWER_TIMEOUT_MS);
  try {
    socket.connect(nest.port, to.ip);
    await Promise.race([
      once(socket, 'data', { signal }),
      once(socket, 'end', { signal }).then(() => Promise.reject(new Error('closed unanswered'))),
    ]);
    const records = await askConnections(localServers(paths), to.node);
    const carried = records.some(
      (record) =>
        record.direction === 'inbound' &&
        record.protocol === 'HBONE' &&
        record.podUid === to.uid &&
        record.source.startsWith(`${from.ip}:`),
    );
    if (!carried) throw new MeshError('STATE_CONFLICT', `${name} did not use HBONE`);
  } catch (error) {
    if (error instanceof MeshError) throw error;
    throw new MeshError('UPSTREAM_CONNECT', `${name} got no answer`, { cause: error });
  } finally {
    socket.destroy();
    nest.server.close();
  }
}

/** Starts a server in the pod's namespace that greets each client. */
async function openNest(pod: PodLine): Promise<{ readonly server: Server; readonly port: number }> {
  const netnsFd = openNetns(pod.netns);
  try {
    const options = { netnsFd, address: '::', port: 0, mark: 0, reusePort: false } as const;
    const { fd, port } = listenTcp({ ...options, transparent: 'off' });
    const server = createServer((client) => {
      // The canary closes its connection after the first bytes.
      client.on('error', () => client.destroy());
      client.write('weft');
    });
    server.listen({ fd });
    await once(server, 'listening');
    return { server, port };
  } finally {
    closeFd(netnsFd);
  }
}

function openSocket(pod: PodLine): Socket {
  const netnsFd = openNetns(pod.netns);
  try {
    return new Socket({
      fd: openTcp({ netnsFd, family: 4, mark: 0, noDelay: true }),
      allowHalfOpen: true,
    });
  } finally {
    closeFd(netnsFd);
  }
}
