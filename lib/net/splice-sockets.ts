import { closeFd } from '../linux/netns.ts';
import { resetOnClose } from '../linux/sockets.ts';
import { splicePump } from '../linux/splice-pump.ts';
import { ENDED_COPY, bidiCopy, socketEnd } from './bidi-copy.ts';
import type { Copy } from './bidi-copy.ts';
import type { ByteAccount } from './held-bytes.ts';
import { RawSocket } from './raw-socket.ts';

/**
 * Joins two connected sockets until both directions have ended. They leave JavaScript; the copy's `done` marks the end. If they cannot
 * leave (no descriptors are free, or bytes wait in JavaScript to be written), they are copied here instead, and waiting bytes are
 * charged to the account.
 */
export function spliceSockets(a: RawSocket, b: RawSocket, bytes?: ByteAccount): Copy {
  if (a.gone || b.gone) {
    // One has ended before they were joined.
    a.reset();
    b.reset();
    return ENDED_COPY;
  }
  const ends = RawSocket.takeBoth(a, b);
  if (ends === null) return bidiCopy(socketEnd(a), socketEnd(b), bytes);
  try {
    return splicePump(ends.a, ends.b);
  } catch (error) {
    for (const { fd } of [ends.a, ends.b]) {
      resetOnClose(fd);
      closeFd(fd);
    }
    throw error;
  }
}
