/** Makes a port of a network namespace reachable on loopback of this one. */
import { once } from 'node:events';
import { Socket, createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { closeFd, openNetns } from '../../../lib/linux/netns.ts';
import { openTcp } from '../../../lib/linux/sockets.ts';
import type { TeardownOwner } from '../../support/actor-context.ts';

/** Carries connections to a port of the namespace's loopback; returns the port here. The owner's end cuts them all. */
export async function relayInto(t: TeardownOwner, netns: string, port: number): Promise<number> {
  const netnsFd = openNetns(netns);
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (near) => {
    const fd = openTcp({ netnsFd, family: 4, mark: 0, noDelay: true });
    const far = new Socket({ fd, allowHalfOpen: true }).connect(port, '127.0.0.1');
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(socket);
      socket.pipe(other);
      // The other end learns of it by the cut.
      socket.on('error', () => other.destroy());
      socket.on('close', () => sockets.delete(socket));
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(async () => {
    const closed = once(server, 'close');
    server.close();
    for (const socket of sockets) socket.destroy();
    await closed;
    closeFd(netnsFd);
  });
  return (server.address() as AddressInfo).port;
}
