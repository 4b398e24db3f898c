/** A pool thread that serves a listener in another namespace and reports the thread's own namespace. */
import { createServer } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import type { MessagePort } from 'node:worker_threads';
import { closeFd, openNetns, threadNetns } from '../../lib/linux/netns.ts';
import { acceptedNames, listenTcp, openTcp } from '../../lib/linux/sockets.ts';

/** Serves one connection at `port` of the namespace; answers with the original destination. */
export default async function serveOne(task: {
  readonly path: string;
  readonly port: number;
  readonly ready: MessagePort;
}): Promise<{ before: string; after: string; errors: number }> {
  const before = threadNetns().inode;
  let errors = 0;
  const netnsFd = openNetns(task.path);
  // A failure must not leave the thread in the pod's namespace.
  for (const attempt of [
    () => openTcp({ netnsFd: 99_999, family: 4, mark: 0, noDelay: true }),
    () => openTcp({ netnsFd, family: 4, mark: 0, noDelay: true, bindLoopback: '203.0.113.9' }),
    () => listen(netnsFd, '203.0.113.9', task.port),
  ]) {
    try {
      closeFd(attempt());
    } catch {
      errors += 1;
    }
  }
  const fd = listen(netnsFd, '::', task.port);
  const server = createServer((socket) => {
    const handle = (socket as unknown as { _handle: { fd: number } })._handle;
    const names = acceptedNames(handle.fd, true);
    socket.end(`${names?.[4]} ${names?.[5]} from ${names?.[0]}\n`);
  });
  const served = new Promise((resolve) => server.once('connection', resolve));
  server.listen({ fd });
  task.ready.postMessage('ready');
  await Promise.race([served, wait(20_000, null, { ref: false })]);
  await new Promise((resolve) => server.close(resolve));
  closeFd(netnsFd);
  return { before, after: threadNetns().inode, errors };
}

function listen(netnsFd: number, address: string, port: number): number {
  return listenTcp({ netnsFd, address, port, mark: 1_337, reusePort: true, transparent: 'on' }).fd;
}
