/** Gives out loopback ports that no other socket gets. */
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/** Below the range for port 0 and for clients (`net.ipv4.ip_local_port_range` begins at 32768). */
const FIRST = 18_000;
const LAST = 32_000;
const ATTEMPTS = 100;

const given = new Set<number>();

/**
 * Returns a loopback port for a server that must know its port beforehand or restart on it. The port is free now and is
 * given once in this process. The kernel never gives it to another socket, as it may with a closed port from port 0.
 */
export async function ownPort(): Promise<number> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    const port = randomInt(FIRST, LAST);
    if (given.has(port) || !(await isFree(port))) continue;
    given.add(port);
    return port;
  }
  throw new Error(`none of ${ATTEMPTS} ports is free`);
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  try {
    // `once` rejects with the server's error.
    const listening = once(server, 'listening');
    server.listen(port, '127.0.0.1');
    await listening;
  } catch {
    return false;
  }
  server.close();
  await once(server, 'close');
  return true;
}
