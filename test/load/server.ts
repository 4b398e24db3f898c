/** Serves many pods from one process: one small answer for each request byte, or endless bytes. */
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { Socket } from 'node:net';
import { openNetns } from '../../lib/linux/netns.ts';
import { listenTcp } from '../../lib/linux/sockets.ts';
import { ASK_BULK, LOAD_PORT, SMALL_BYTES } from './messages.ts';
import type { LoadAnswer, LoadMessage, LoadPod } from './messages.ts';

const SMALL = Buffer.alloc(SMALL_BYTES, 'x');
const BULK = Buffer.alloc(262_144, 'y');

function stream(socket: Socket): void {
  const more = (): void => {
    while (!socket.destroyed && socket.write(BULK));
  };
  socket.on('drain', more);
  more();
}

function serve(socket: Socket): void {
  socket.on('error', () => socket.destroy());
  socket.on('data', (chunk: Buffer) => {
    if (chunk[0] === ASK_BULK.charCodeAt(0)) stream(socket);
    else for (let index = 0; index < chunk.length; index += 1) socket.write(SMALL);
  });
}

async function listen({ netns }: LoadPod): Promise<void> {
  const { fd } = listenTcp({
    netnsFd: openNetns(netns),
    address: '::',
    port: LOAD_PORT,
    mark: 0,
    reusePort: false,
    transparent: 'off',
  });
  const server = createServer({ noDelay: true }, serve);
  server.listen({ fd });
  await once(server, 'listening');
}

process.on('message', (message: LoadMessage) => {
  if (message.type !== 'serve') return;
  void Promise.all(message.pods.map(listen)).then(() => {
    const answer: LoadAnswer = {
      done: message.pods.length,
      failures: [],
      bytes: 0,
      latencies: [],
      lost: 0,
    };
    process.send?.(answer);
  });
});
