/** Connects from a pod to an address that nobody has: only redirection to the proxy makes the connection come about. */
import type { Clock } from '../../../lib/clock/clock.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { closeFd } from '../../../lib/linux/netns.ts';
import { connectSocket, openTcp, watchConnecting } from '../../../lib/linux/sockets.ts';
import { PROXY_PACKET_MARK } from '../../../lib/redirect/rules.ts';
import { CANARY_MS } from '../limits.ts';

/** Kept for documentation (RFC 5737), so that no network routes it. */
const NOBODY = '192.0.2.1';
const DISCARD_PORT = 9;

/** `captured`: the proxy took the connection. Else the outcome of the connect. */
export type CanaryResult =
  | 'captured'
  | 'not-captured'
  | 'refused'
  | 'no-route'
  | 'cut-off'
  | 'answered-by-others';

const FAILURES: Readonly<Record<string, CanaryResult>> = {
  ECONNREFUSED: 'refused',
  ENETUNREACH: 'no-route',
  EACCES: 'cut-off',
};

/** Sends the canary, and beside it one with the proxy's mark, which the rules let pass: it must not come about. */
export async function sendCanary(netnsFd: number, clock: Clock): Promise<CanaryResult> {
  const [canary, control] = await Promise.all([
    connect(netnsFd, 0, clock),
    connect(netnsFd, PROXY_PACKET_MARK, clock),
  ]);
  return canary === 'captured' && control === 'captured' ? 'answered-by-others' : canary;
}

async function connect(netnsFd: number, mark: number, clock: Clock): Promise<CanaryResult> {
  const fd = openTcp({ netnsFd, family: 4, mark, noDelay: false });
  let watch: { close(): void } | null = null;
  try {
    let state = connectSocket(fd, NOBODY, DISCARD_PORT);
    if (state === 'pending') {
      const changed = Promise.withResolvers<void>();
      watch = watchConnecting(fd, changed.resolve);
      const limit = clock.after(CANARY_MS, changed.resolve);
      await changed.promise;
      limit.cancel();
      state = connectSocket(fd, NOBODY, DISCARD_PORT);
    }
    return state === 'pending' ? 'not-captured' : 'captured';
  } catch (error) {
    if (!(error instanceof MeshError) || error.code !== 'NATIVE_SYSCALL') throw error;
    // Routers tell in other ways that nobody has the address; the packet has left the pod by then.
    return FAILURES[String(error.detail['errno'])] ?? 'not-captured';
  } finally {
    watch?.close();
    closeFd(fd);
  }
}
