/**
 * Opens connections and holds them. `idle.ts HOST PORT COUNT...` prints `open` when the first COUNT are open,
 * goes on to the next COUNT with each line that it reads, and ends on SIGTERM.
 */
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { createInterface } from 'node:readline';

/** More at once would overrun the listen backlog of 128. */
const OPENING_AT_ONCE = 50;

const [host = '', port = '0', ...counts] = process.argv.slice(2);
const sockets: Socket[] = [];

async function open(count: number): Promise<void> {
  while (sockets.length < count) {
    const socket = connect({ host, port: Number(port) });
    sockets.push(socket);
    await new Promise<void>((resolve, reject) => {
      socket.once('connect', resolve);
      socket.once('error', reject);
    });
    socket.on('close', () => process.exit(1));
  }
}

process.on('SIGTERM', () => process.exit(0));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
for (const count of counts.map(Number)) {
  await Promise.all(Array.from({ length: OPENING_AT_ONCE }, () => open(count)));
  process.stdout.write('open\n');
  await lines.next();
}
