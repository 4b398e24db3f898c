/** Serves the watch of the control plane's manifest API to its clients, over real HTTP on a unix socket. */
import type { ServerResponse } from 'node:http';
import { rm } from 'node:fs/promises';
import { once } from 'node:events';
import { createServer } from '../../lib/http/node-http.ts';

/** Makes a pod as the manifest API shows it. */
export function podObject(
  namespace: string,
  name: string,
  options: { readonly node: string; readonly account: string; readonly phase?: string },
): Record<string, unknown> {
  return {
    kind: 'Pod',
    metadata: { namespace, name, uid: `uid-${namespace}-${name}` },
    spec: { nodeName: options.node, serviceAccountName: options.account },
    status: { phase: options.phase ?? 'Running' },
  };
}

/** Makes the pod of a node's proxy; the token of `nodeSubject` is bound to it. */
export function nodePod(node: string): Record<string, unknown> {
  return podObject('istio-system', `ztunnel-${node}`, { node, account: 'ztunnel' });
}

/** A server of the watch. */
export interface PodsApi {
  readonly socketPath: string;
  readonly watchers: number;
  /** Sends a line to every watcher. */
  send(line: unknown): void;
  close(): Promise<void>;
}

/** Serves `GET /watch?kind=Pod`, beginning with these pods. */
export async function servePodsApi(socketPath: string, pods: readonly unknown[]): Promise<PodsApi> {
  const watchers = new Set<ServerResponse>();
  const server = createServer((request, response) => {
    if (request.url !== '/watch?kind=Pod') {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, { 'content-type': 'application/x-ndjson' });
    const list = [
      { type: 'LIST', version: 2 },
      ...pods.map((object) => ({ type: 'ADDED', object })),
      { type: 'SYNC' },
    ];
    for (const line of list) response.write(`${JSON.stringify(line)}\n`);
    watchers.add(response);
    response.on('close', () => watchers.delete(response));
  });
  await rm(socketPath, { force: true });
  server.listen(socketPath);
  await once(server, 'listening');
  return {
    socketPath,
    get watchers() {
      return watchers.size;
    },
    send: (line) => {
      for (const watcher of watchers) watcher.write(`${JSON.stringify(line)}\n`);
    },
    close: async () => {
      for (const watcher of watchers) watcher.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}
