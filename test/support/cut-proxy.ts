/** A unix socket in front of a Redis that breaks the connection at a chosen command. */
import { connect, createServer } from 'node:net';
import type { Socket } from 'node:net';
import { once } from 'node:events';
import type { ExecutionContext } from 'ava';

/** Where to break the connection. */
export interface Cut {
  /** Text that the command contains, such as the hash of a script. */
  readonly needle: string;
  /** Which command with this text, counted from 1. */
  readonly nth: number;
  /** Before Redis gets the command, or once Redis has answered it, without the answer. */
  readonly side: 'before' | 'after';
  /** Called at the cut. */
  readonly onCut: () => void;
}

/** See {@link startCutProxy}. */
export interface CutProxy {
  /** Breaks one connection at the cut; null breaks none. */
  arm(cut: Cut | null): void;
  /** True when the cut was made. */
  readonly done: boolean;
  /** Breaks all connections. */
  cutAll(): void;
}

/** Listens at `path` and carries bytes to and from the unix socket `target`, until the test ends. */
export async function startCutProxy(
  t: ExecutionContext,
  path: string,
  target: string,
): Promise<CutProxy> {
  const sockets = new Set<Socket>();
  let armed: Cut | null = null;
  let seen = 0;
  let done = false;
  const server = createServer((client) => {
    const redis = connect(target);
    const end = (): void => {
      client.destroy();
      redis.destroy();
      sockets.delete(client);
      sockets.delete(redis);
    };
    for (const socket of [client, redis]) {
      sockets.add(socket);
      // Either end going ends both.
      socket.on('error', end).on('close', end);
    }
    let lost = false;
    const cut = ({ onCut }: Cut): void => {
      done = true;
      onCut();
      end();
    };
    client.on('data', (bytes) => {
      if (armed !== null && bytes.includes(armed.needle)) {
        seen += 1;
        if (seen === armed.nth) {
          if (armed.side === 'before') return cut(armed);
          lost = true;
        }
      }
      redis.write(bytes);
    });
    redis.on('data', (bytes) => {
      if (lost && armed !== null) return cut(armed);
      client.write(bytes);
    });
  });
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  server.listen(path);
  await once(server, 'listening');
  return {
    arm: (cut) => {
      armed = cut;
      seen = 0;
      done = false;
    },
    get done() {
      return done;
    },
    cutAll: () => {
      for (const socket of sockets) socket.destroy();
    },
  };
}
