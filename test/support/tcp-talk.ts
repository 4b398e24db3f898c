/** Short exchanges over TCP sockets of a test. */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { readAll } from './tunnel-kit.ts';

/** Sends everything back. */
export function echo(socket: Socket): void {
  socket.pipe(socket);
}

/** Sends the text, ends, and resolves with everything received. */
export async function ask(socket: Socket, text: string): Promise<string> {
  socket.end(text);
  return (await readAll(socket)).toString();
}

/** Reads the next bytes that arrive, as text. */
export async function heard(socket: Socket): Promise<string> {
  const arrived = once(socket, 'data');
  socket.resume();
  const [chunk] = (await arrived) as [Buffer];
  socket.pause();
  return chunk.toString();
}

/** Resolves when the other side has closed or reset the connection; then closes our side. */
export function closed(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    if (socket.closed) resolve();
    socket.once('close', () => resolve());
    socket.once('end', () => socket.end());
    socket.on('error', () => undefined);
    socket.resume();
  });
}
