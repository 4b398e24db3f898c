/** A connection between two namespaces that a test keeps and speaks over now and then. */
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { ExecutionContext } from 'ava';
import { closeFd, openNetns } from '../../lib/linux/netns.ts';
import { listenTcp, openTcp } from '../../lib/linux/sockets.ts';
import { connectTcp } from '../../lib/net/connect-tcp.ts';
import type { TestNetns } from './netns-kit.ts';

const ANSWER_TIMEOUT_MS = 60_000;

/** Connects from one namespace to an echo server in the other, at `ip`; what is returned says a word and hears it. */
export async function keptConnection(
  t: ExecutionContext,
  ends: {
    readonly from: TestNetns;
    readonly to: TestNetns;
    readonly ip: string;
    readonly mark?: number;
  },
): Promise<(word: string) => Promise<string>> {
  const [from, to] = [openNetns(ends.from.path), openNetns(ends.to.path)];
  t.teardown(() => {
    closeFd(from);
    closeFd(to);
  });
  const options = { address: '::', port: 0, mark: 0, reusePort: false } as const;
  const { fd, port } = listenTcp({ ...options, netnsFd: to, transparent: 'off' });
  const server = createServer((peer) => {
    // The test's end closes both sides in any order.
    peer.on('error', () => peer.destroy());
    peer.pipe(peer);
  });
  server.listen({ fd });
  await once(server, 'listening');
  const family = ends.ip.includes(':') ? 6 : 4;
  const socket = await connectTcp(
    openTcp({ netnsFd: from, family, mark: ends.mark ?? 0, noDelay: true }),
    { ip: ends.ip, port },
    { timeoutMs: ANSWER_TIMEOUT_MS },
  );
  t.teardown(() => {
    socket.destroy();
    server.close();
  });
  let failure: Error | null = null;
  socket.on('error', (error) => (failure ??= error));
  return async (word) => {
    if (failure !== null) throw failure;
    const signal = AbortSignal.timeout(ANSWER_TIMEOUT_MS);
    const heard = once(socket, 'data', { signal }) as Promise<[Buffer]>;
    // Sockets are handed out paused.
    socket.resume();
    socket.write(word);
    return (await heard)[0].toString();
  };
}
