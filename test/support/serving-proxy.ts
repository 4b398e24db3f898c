/** A node proxy reduced to its ZDS side, with a real session and real listeners in the pods' namespaces, but no data path. */
import { createServer } from 'node:net';
import type { Server } from 'node:net';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../lib/clock/clock.ts';
import { closeFd, netnsIdentity, sameNetns } from '../../lib/linux/netns.ts';
import type { NetnsIdentity } from '../../lib/linux/netns.ts';
import { acceptedNames, listenTcp } from '../../lib/linux/sockets.ts';
import { ZdsProxy } from '../../lib/zds/proxy.ts';
import type { ZdsWorkloadInfo } from '../../lib/zds/frames.ts';
import { keptLog } from './actor-context.ts';

const PORTS = [15_008, 15_006, 15_001];

/** A pod as the proxy serves it. */
export interface ServedPod {
  readonly info: ZdsWorkloadInfo;
  readonly netns: NetnsIdentity;
  readonly servers: readonly Server[];
}

/** A proxy under a test's control. */
export class ServingProxy {
  readonly served = new Map<string, ServedPod>();
  /** All messages received, such as `add u-1`. */
  readonly told: string[] = [];
  /** Uids whose Add is answered with an error. */
  readonly refused = new Set<string>();
  readonly client: ZdsProxy;

  constructor(path: string, group = 0) {
    const { log } = keptLog('serving-proxy');
    this.client = new ZdsProxy(
      { path, hello: { group, state: 'serving' }, clock: systemClock, log },
      {
        sessionStarted: () => this.told.push('session'),
        sessionEnded: () => this.told.push('ended'),
        add: (uid, info, fd) => this.#add(uid, info, fd),
        del: async (uid) => {
          this.told.push(`del ${uid}`);
          this.stopPod(uid);
        },
        snapshot: async (uids) => {
          this.told.push(`snapshot ${[...uids].sort().join(' ')}`.trim());
          for (const uid of this.served.keys()) if (!uids.has(uid)) this.stopPod(uid);
        },
      },
    );
  }

  /** Closes the listeners of a pod. */
  stopPod(uid: string): void {
    for (const server of this.served.get(uid)?.servers ?? []) server.close();
    this.served.delete(uid);
  }

  /** Closes one listener; the proxy does not notice. */
  loseListener(uid: string, index: number): void {
    this.served.get(uid)?.servers[index]?.close();
  }

  async stop(): Promise<void> {
    await this.client.close();
    for (const uid of this.served.keys()) this.stopPod(uid);
  }

  async #add(uid: string, info: ZdsWorkloadInfo, fd: number): Promise<void> {
    this.told.push(`add ${uid}`);
    const netns = netnsIdentity(fd);
    try {
      const known = this.served.get(uid);
      if (known !== undefined && sameNetns(known.netns, netns)) return;
      if (this.refused.has(uid)) throw new Error(`${uid} is refused here`);
      this.stopPod(uid);
      this.served.set(uid, { info, netns, servers: PORTS.map((port) => serve(fd, port)) });
    } finally {
      closeFd(fd);
    }
  }
}

/** Starts a proxy; the end of the test stops it. */
export function startServingProxy(t: ExecutionContext, path: string, group = 0): ServingProxy {
  const proxy = new ServingProxy(path, group);
  t.teardown(() => proxy.stop());
  proxy.client.start();
  return proxy;
}

/** Sends each connection the port at which it arrived and its original destination. */
function serve(netnsFd: number, port: number): Server {
  const { fd } = listenTcp({
    netnsFd,
    address: '::',
    port,
    mark: 1_337,
    reusePort: true,
    transparent: 'auto',
  });
  const server = createServer((socket) => {
    const handle = (socket as unknown as { _handle: { fd: number } })._handle;
    const [, , , , ip, to] = acceptedNames(handle.fd, true) ?? [];
    socket.on('error', () => undefined);
    socket.end(`${port} ${ip === undefined ? 'unknown' : `${ip} ${to}`}\n`);
  });
  server.listen({ fd });
  return server;
}
