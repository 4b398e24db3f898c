/** Gives out loopback ports that no other socket gets. */
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { ListenOptions, Server } from 'node:net';

/** Below the range for port 0 and for clients (`net.ipv4.ip_local_port_range` begins at 32768). */
const FIRST = 18_000;
const LAST = 32_000;
const ATTEMPTS = 100;

/** A listening socket for each port that was given out; the kernel closes them with the process. */
const given = new Map<number, Server>();

/**
 * Returns a loopback port for a server that must know its port beforehand or restart on it. The port is free now, and no
 * process of the tests is given it while this one runs. The kernel never gives it to another socket, as it may with a closed
 * port from port 0.
 */
export async function ownPort(): Promise<number> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    const port = randomInt(FIRST, LAST);
    if (given.has(port)) continue;
    // Files run side by side: two of them must not find the same port free.
    const claim = await listenOn({ path: `\0weft-test-port-${port}` });
    if (claim === null) continue;
    claim.unref();
    given.set(port, claim);
    const free = await listenOn({ port, host: '127.0.0.1' });
    if (free === null) continue;
    free.close();
    await once(free, 'close');
    return port;
  }
  throw new Error(`none of ${ATTEMPTS} ports is free`);
}

/** Returns a server that listens; null when another one does. */
async function listenOn(options: ListenOptions): Promise<Server | null> {
  const server = createServer();
  try {
    // `once` rejects with the server's error.
    const listening = once(server, 'listening');
    server.listen(options);
    await listening;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EADDRINUSE') return null;
    throw error;
  }
  return server;
}
