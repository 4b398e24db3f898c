/**
 * Makes exchanges with a server, several at once, until SIGTERM; then finishes the running ones and prints the last
 * counts. Runs in a pod: `client.ts HOST AT-ONCE PAUSE-MS KIND...`.
 */
import { setTimeout as wait } from 'node:timers/promises';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { exchange } from './exchanges.ts';
import type { Exchange, SoakLine } from './protocol.ts';

const REPORT_MS = 500;

const [host = '', atOnce = '1', pauseMs = '10', ...kinds] = process.argv.slice(2);
const counts: Partial<Record<Exchange, number>> = {};
const ending = new AbortController();
process.on('SIGTERM', () => ending.abort());

function print(line: SoakLine): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

async function loop(first: number): Promise<void> {
  for (let turn = first; !ending.signal.aborted; turn += 1) {
    const kind = kinds[turn % kinds.length] as Exchange;
    try {
      await exchange(kind, host);
      counts[kind] = (counts[kind] ?? 0) + 1;
    } catch (error) {
      print({ failure: { exchange: kind, reason: errorText(error) } });
    }
    await wait(Number(pauseMs));
  }
}

const timer = setInterval(() => print({ counts }), REPORT_MS);
await Promise.all(Array.from({ length: Number(atOnce) }, (_, index) => loop(index)));
clearInterval(timer);
print({ counts });
