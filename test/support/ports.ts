/** Ports that nobody else is given. */
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/** Below those that the kernel gives to port 0 and to clients (`net.ipv4.ip_local_port_range` begins at 32768). */
const FIRST = 18_000;
const LAST = 32_000;
const ATTEMPTS = 100;

const given = new Set<number>();

/**
 * A loopback port for a server that must know it beforehand or come back on it: free now, given once in this process, and
 * never handed to another by the kernel, as one that port 0 gave would be between its closing and its use.
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
    // Rejects with the server's error.
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
