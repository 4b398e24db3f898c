import type { Socket } from 'node:net';
import type { Clock } from '../../../lib/clock/clock.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';

/**
 * Resolves when a paused socket has bytes to read, which stay in it. Costs next to nothing while a client keeps silent. Rejects
 * with TLS_HANDSHAKE when it closes, or says nothing within the time.
 */
export function firstBytes(socket: Socket, timeoutMs: number, clock: Clock): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (error: MeshError | null): void => {
      timer.cancel();
      socket.off('readable', readable);
      socket.off('close', gone);
      if (error === null) resolve();
      else reject(error);
    };
    const gone = (): void =>
      settle(new MeshError('TLS_HANDSHAKE', 'the peer closed the connection'));
    // Also emitted at the end of the stream.
    const readable = (): void => (socket.readableLength > 0 ? settle(null) : gone());
    const timer = clock.after(timeoutMs, () =>
      settle(new MeshError('TLS_HANDSHAKE', `the peer said nothing within ${timeoutMs} ms`)),
    );
    socket.on('readable', readable);
    socket.on('close', gone);
    if (socket.destroyed) gone();
  });
}
