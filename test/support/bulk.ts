/** Much data over a socket: sent, checked, or held up. */
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { MIB } from './tunnel-kit.ts';
import { until } from './until.ts';

/** Writes 1 MiB blocks, each different, and ends; resolves with their checksum. */
export async function pour(socket: Socket, blocks: number): Promise<string> {
  const block = randomBytes(MIB);
  const hash = createHash('sha1');
  for (let round = 0; round < blocks; round += 1) {
    const chunk = Buffer.from(block);
    chunk.writeUInt32LE(round);
    hash.update(chunk);
    if (!socket.write(chunk)) await once(socket, 'drain');
  }
  socket.end();
  return hash.digest('hex');
}

/** Reads to the end; the checksum of what came. */
export async function digest(socket: Socket): Promise<string> {
  const hash = createHash('sha1');
  for await (const chunk of socket.iterator({ destroyOnReturn: false }))
    hash.update(chunk as Buffer);
  return hash.digest('hex');
}

/**
 * Writes until nothing more is taken: neither the peer nor anything between reads. Returns what was handed over. Where
 * everything is taken, `limit` ends one go.
 */
export async function stall(
  socket: Socket,
  { limit = Infinity, timeoutMs = 20_000 } = {},
): Promise<number> {
  const chunk = Buffer.alloc(65_536);
  let sent = 0;
  const pump = (): void => {
    do sent += chunk.length;
    while (socket.write(chunk) && sent < limit);
  };
  socket.on('drain', pump);
  pump();
  let last = -1;
  let unchanged = 0;
  await until(
    () => {
      unchanged = sent === last ? unchanged + 1 : 0;
      last = sent;
      return unchanged > 25;
    },
    { timeoutMs, what: 'the sender to stop' },
  );
  socket.off('drain', pump);
  return sent;
}
