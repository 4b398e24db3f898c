import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import test from 'ava';
import { acceptQueued, listenTcp } from '../../../lib/linux/sockets.ts';
import { adoptSocket, serverFd } from '../../../lib/net/socket.ts';
import { takeQueued } from '../../../workers/listener/migration.ts';

const LISTEN = { netnsFd: null, mark: 0, reusePort: true, transparent: 'off', port: 0 } as const;

const loopback = new Set(
  Object.values(networkInterfaces()).flatMap((all = []) => all.map((one) => one.address)),
);

for (const address of ['127.0.0.1', '::1']) {
  // A container may lack IPv6; network namespaces of the tests always have it.
  const here = loopback.has(address) ? test : test.skip;
  here(
    `what waits at a closing listener of ${address} is accepted, and loses no byte`,
    async (t) => {
      const { fd, port } = listenTcp({ ...LISTEN, address });
      // Nothing accepts yet: the kernel completes the handshakes.
      const clients = await Promise.all(
        Array.from({ length: 20 }, async () => {
          const socket = connect(port, address);
          await once(socket, 'connect');
          socket.write('before');
          return socket;
        }),
      );
      const accepted: Socket[] = [];
      for (let next = acceptQueued(fd); next !== null; next = acceptQueued(fd)) {
        accepted.push(adoptSocket(next));
        if (accepted.length === 5) break;
      }
      t.is(accepted.length, 5);
      const server = createServer(() => t.fail('accepted by the server'));
      server.listen({ fd });
      // In the turn in which the server begins to listen, it has accepted nothing.
      accepted.push(...takeQueued(server));
      server.close();
      t.is(accepted.length, 20);
      t.deepEqual(takeQueued(server), []);
      t.is(serverFd(server), null);
      for (const socket of accepted) {
        t.is(socket.bytesRead, 0);
        t.true(socket.isPaused() || socket.readableFlowing === false);
        const data = once(socket, 'data') as Promise<[Buffer]>;
        socket.resume();
        const [chunk] = await data;
        t.is(chunk.toString(), 'before');
      }
      for (const socket of [...clients, ...accepted]) socket.destroy();
    },
  );
}
