/** Runs all servers of a pod in one process. `server.ts` prints a line when they listen. */
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { GREETING, PORTS, STALL_MS } from './protocol.ts';

const CHUNK = Buffer.alloc(65_536, 'x');
/** Enough bytes to be in flight when the reset comes. */
const BYTES_BEFORE_RESET = 10_000;

function echo(socket: Socket): void {
  socket.pipe(socket);
}

async function source(socket: Socket): Promise<void> {
  let line = '';
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
    line += String(chunk);
    if (line.includes('\n')) break;
  }
  for (let left = Number(line); left > 0 && !socket.destroyed; left -= CHUNK.length) {
    const more = socket.write(left >= CHUNK.length ? CHUNK : CHUNK.subarray(0, left));
    if (!more) await Promise.race([once(socket, 'drain'), once(socket, 'close')]);
  }
  socket.resume().end();
}

async function sink(socket: Socket): Promise<void> {
  let bytes = 0;
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
    bytes += (chunk as Buffer).length;
  }
  socket.end(`${bytes}\n`);
}

const behaviours: Readonly<Record<keyof typeof PORTS, (socket: Socket) => unknown>> = {
  echo,
  source,
  sink,
  serverFirst(socket) {
    socket.write(GREETING);
    echo(socket);
  },
  reset(socket) {
    socket.resume().write(CHUNK.subarray(0, BYTES_BEFORE_RESET), () => socket.resetAndDestroy());
  },
  async stall(socket) {
    await wait(STALL_MS);
    await sink(socket);
  },
};

const servers = Object.entries(PORTS).map(([name, port]) =>
  createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    // The client checks which side aborted and whether it should have.
    socket.on('error', () => socket.destroy());
    const behaviour = behaviours[name as keyof typeof PORTS];
    Promise.resolve(behaviour(socket)).catch(() => socket.destroy());
  }).listen(port, '::', 1_024),
);
await Promise.all(servers.map((server) => once(server, 'listening')));
process.stdout.write('listening\n');
