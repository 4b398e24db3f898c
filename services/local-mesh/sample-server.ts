/**
 * The default servers of a node: one process that listens in the network namespaces of many pods. `PUT /pods` on a unix
 * socket sets the whole list of pods, so a restarted process needs one call. The only argument is the socket's path.
 */
import type { Server, Socket } from 'node:net';
import { chmod, rm } from 'node:fs/promises';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import * as z from 'zod';
import { createServer } from '../../lib/http/node-http.ts';
import { sendJson } from '../../lib/http/answers.ts';
import { present } from '../../lib/errors/assert.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { closeFd, netnsIdentity, openNetns } from '../../lib/linux/netns.ts';
import { raiseFileLimit } from '../../lib/linux/process.ts';
import { listenTcp } from '../../lib/linux/sockets.ts';
import { createLogger } from '../../lib/log/logger.ts';
import { greetingServer, httpServer } from './sample-protocols.ts';

const podSchema = z.strictObject({
  uid: z.string(),
  name: z.string(),
  netns: z.string(),
  ports: z.array(
    z.strictObject({ port: z.int().min(1).max(65_535), protocol: z.enum(['http', 'greeting']) }),
  ),
});
const listSchema = z.strictObject({ pods: z.array(podSchema) });

/** A pod to serve. */
export type SamplePod = z.infer<typeof podSchema>;

/** Accept queue of each listener. */
const BACKLOG = 512;

interface ServedPod {
  readonly key: string;
  readonly servers: readonly Server[];
  /** Open connections. One that is left behind would keep the pod's namespace alive. */
  readonly sockets: ReadonlySet<Socket>;
}

/** Listens in pods' namespaces. */
export class SampleServers {
  readonly #served = new Map<string, ServedPod>();

  /** Serves exactly these pods. Resolves with the reason for each pod that could not be served. */
  async serve(pods: readonly SamplePod[]): Promise<Record<string, string>> {
    const wanted = new Set(pods.map((pod) => pod.uid));
    for (const uid of this.#served.keys()) if (!wanted.has(uid)) this.#stop(uid);
    const failures: Record<string, string> = {};
    for (const pod of pods) {
      try {
        await this.#start(pod);
      } catch (error) {
        failures[pod.uid] = errorText(error);
      }
    }
    return failures;
  }

  async #start(pod: SamplePod): Promise<void> {
    const netnsFd = openNetns(pod.netns);
    try {
      const key = JSON.stringify([netnsIdentity(netnsFd), pod.ports]);
      if (this.#served.get(pod.uid)?.key === key) return;
      this.#stop(pod.uid);
      const servers: Server[] = [];
      const sockets = new Set<Socket>();
      this.#served.set(pod.uid, { key, servers, sockets });
      for (const { port, protocol } of pod.ports) {
        const server = protocol === 'http' ? httpServer(pod.name) : greetingServer(pod.name);
        server.on('connection', (socket: Socket) => {
          sockets.add(socket);
          socket.once('close', () => sockets.delete(socket));
        });
        const { fd } = listenTcp({
          netnsFd,
          address: '::',
          port,
          mark: 0,
          reusePort: false,
          transparent: 'off',
          backlog: BACKLOG,
        });
        servers.push(server.listen({ fd }));
        await once(server, 'listening');
      }
    } catch (error) {
      this.#stop(pod.uid);
      throw error;
    } finally {
      closeFd(netnsFd);
    }
  }

  #stop(uid: string): void {
    const pod = this.#served.get(uid);
    this.#served.delete(uid);
    for (const server of pod?.servers ?? []) server.close();
    for (const socket of pod?.sockets ?? []) socket.destroy();
  }
}

async function main(socketPath: string): Promise<void> {
  const log = createLogger({ actor: 'sample-server' });
  raiseFileLimit();
  const servers = new SampleServers();
  let turn: Promise<unknown> = Promise.resolve();
  const control = createServer((request, response) => {
    const answer = async (): Promise<void> => {
      const { pods } = listSchema.parse(JSON.parse(await text(request)));
      const failures = await servers.serve(pods);
      log.info({ pods: pods.length, failures }, 'sample.serving');
      sendJson(response, 200, { failures });
    };
    turn = turn.then(answer).catch((error: unknown) => {
      sendJson(response, 400, { error: errorText(error) });
    });
  });
  await rm(socketPath, { force: true });
  control.listen(socketPath);
  await once(control, 'listening');
  await chmod(socketPath, 0o600);
  log.info({ socketPath }, 'sample.started');
}

if (import.meta.main) await main(present(process.argv[2], 'a socket path is given'));
