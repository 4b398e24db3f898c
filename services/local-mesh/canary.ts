/** The proof that a mesh works: a connection between two nodes that the receiving proxy carried over HBONE. */
import { once } from 'node:events';
import { Socket, createServer } from 'node:net';
import type { Server } from 'node:net';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { closeFd, openNetns } from '../../lib/linux/netns.ts';
import { listenTcp, openTcp } from '../../lib/linux/sockets.ts';
import { askConnections } from './mesh-client.ts';
import type { MeshPaths } from './mesh-paths.ts';
import type { PodLine } from './supervisor-api.ts';

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

/** What of the proof is missing for want of pods; null when nothing is. */
export function canaryLack(route: CanaryRoute | null, nodes: number): string | null {
  if (route === null) return 'no canary connection was made: fewer than two pods are enrolled';
  if (nodes < 2 || route.from.node !== route.to.node) return null;
  return `the canary connection stayed on ${route.from.node}: no other node has an enrolled pod`;
}

/**
 * Opens a connection along the route, to a listener of its own in the receiving pod so that it needs no
 * application there, and asks the receiving node's proxy for it. Throws UPSTREAM_CONNECT when nothing comes
 * through, STATE_CONFLICT when it did not use HBONE.
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
    const records = await askConnections(paths, to.node);
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

/** A server in the pod's namespace that greets whoever connects. */
async function openNest(pod: PodLine): Promise<{ readonly server: Server; readonly port: number }> {
  const netnsFd = openNetns(pod.netns);
  try {
    const options = { netnsFd, address: '::', port: 0, mark: 0, reusePort: false } as const;
    const { fd, port } = listenTcp({ ...options, transparent: 'off' });
    const server = createServer((client) => {
      // The canary leaves as soon as it has heard something.
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
