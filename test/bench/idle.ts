/** Opens connections and holds them: `idle.ts HOST PORT COUNT` prints `open` when all stand, and ends on SIGTERM. */
import { connect } from 'node:net';
import type { Socket } from 'node:net';

/** More at once would overrun the listen backlog of 128. */
const OPENING_AT_ONCE = 50;

const [host = '', port = '0', count = '0'] = process.argv.slice(2);
const sockets: Socket[] = [];

async function open(): Promise<void> {
  while (sockets.length < Number(count)) {
    const socket = connect({ host, port: Number(port) });
    sockets.push(socket);
    await new Promise<void>((resolve, reject) => {
      socket.once('connect', resolve);
      socket.once('error', reject);
    });
    socket.on('close', () => process.exit(1));
  }
}

await Promise.all(Array.from({ length: OPENING_AT_ONCE }, open));
process.stdout.write('open\n');
process.on('SIGTERM', () => process.exit(0));
