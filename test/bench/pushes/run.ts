/**
 * Measures what it costs the delta server to push a whole mesh, and a single change, to many clients. The clients are a
 * compiled program that throws away what it is sent; a plain `node:http2` server sends it as many bytes for comparison.
 */
import { fork } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { parseArgs } from 'node:util';
import { buildPushClient } from './client.ts';
import { Clients } from './clients.ts';
import type { ClientAnswer } from './clients.ts';
import type { ServerCommand, ServerReport, ServerStarted } from './messages.ts';

const FULL_PUSH_LIMIT_S = 300;
const PROBE_LIMIT_S = 60;
const MB = 1e6;

/** The server, in a process of its own. */
class Server {
  readonly #process: ChildProcess;
  #started: ServerStarted | null = null;

  constructor() {
    this.#process = fork(new URL('server.ts', import.meta.url), { execArgv: ['--expose-gc'] });
  }

  async start(): Promise<ServerStarted> {
    const [started] = (await once(this.#process, 'message')) as [ServerStarted];
    this.#started = started;
    return this.#started;
  }

  async ask(command: ServerCommand): Promise<ServerReport> {
    const answer = once(this.#process, 'message');
    this.#process.send(command);
    const [report] = (await answer) as [ServerReport];
    return report;
  }

  stop(): void {
    this.#process.disconnect();
  }
}

const { values } = parseArgs({
  allowNegative: true,
  options: {
    clients: { type: 'string', default: '100,1000' },
    workloads: { type: 'string', default: '100000' },
    probes: { type: 'string', default: '10' },
    churn: { type: 'string', default: '100' },
    first: { type: 'string' },
    plain: { type: 'boolean', default: true },
  },
});
const built = await buildPushClient();
if ('missing' in built) throw new Error(built.missing);

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

function show(what: string, value: string): void {
  print(`  ${what.padEnd(46)} ${value}`);
}

const turnsOf = ({ longestTurnMs, longestWorkMs, longestGcMs }: ServerReport): string =>
  `${[longestTurnMs, longestWorkMs, longestGcMs].map((ms) => ms.toFixed(1)).join(', ')} ms`;

const rate = ({ bytes, ms }: ClientAnswer): number => bytes / MB / (ms / 1_000);

async function fullPush(
  server: Server,
  clients: Clients,
  count: number,
  workloads: number,
): Promise<ClientAnswer> {
  await server.ask({ do: 'change-all', workloads });
  const idle = await server.ask({ do: 'begin' });
  const { resources } = idle;
  const changed = server.ask({ do: 'push' });
  const answer = await clients.say(`expect ${resources} ${FULL_PUSH_LIMIT_S}`);
  await changed;
  const used = await server.ask({ do: 'report' });
  show(`full push of ${resources} resources to ${count}`, `${(answer.ms / 1_000).toFixed(1)} s`);
  show('  sent', `${(answer.bytes / MB).toFixed(0)} MB, ${rate(answer).toFixed(0)} MB/s`);
  show('  lost', String(answer.lost));
  show(
    '  memory idle, above idle',
    `${idle.rssMb.toFixed(0)}, ${(used.largestRssMb - idle.rssMb).toFixed(0)} MB`,
  );
  show('  longest turn, work alone, gc', turnsOf(used));
  show('  processor time', `${(used.cpuMs / 1_000).toFixed(1)} s`);
  return answer;
}

/** Each probe waits until the one before has arrived everywhere, so that each is a push of its own. */
async function probes(
  server: Server,
  clients: Clients,
  count: number,
  what: string,
): Promise<void> {
  await clients.say('ages');
  await server.ask({ do: 'begin' });
  for (let probe = 1; probe <= Number(values.probes); probe += 1) {
    await server.ask({ do: 'probe' });
    await clients.say(`probed ${probe * count} ${PROBE_LIMIT_S}`);
  }
  const { count: arrivals, p50, p99, max, lost } = await clients.say('ages');
  const used = await server.ask({ do: 'report' });
  show(
    `one change, ${what}: p50, p99, max`,
    [p50, p99, max].map((ms) => `${ms.toFixed(0)} ms`).join(', '),
  );
  show('  arrivals, lost', `${arrivals}, ${lost}`);
  show('  longest turn, work alone, gc', turnsOf(used));
}

/** As many bytes from the plain server; returns MB a second. */
async function plainBytes(server: Server, clients: Clients, count: number): Promise<number> {
  await server.ask({ do: 'begin' });
  const answer = await clients.say(`plain ${count} ${FULL_PUSH_LIMIT_S}`);
  const used = await server.ask({ do: 'report' });
  show('node:http2', `${(answer.ms / 1_000).toFixed(1)} s, ${rate(answer).toFixed(0)} MB/s`);
  show('  longest turn, work alone, gc', turnsOf(used));
  return rate(answer);
}

for (const count of values.clients.split(',').map(Number)) {
  const server = new Server();
  const { address, plainAddress, rootCa } = await server.start();
  const workloads = Number(values.workloads);
  const first = Number(values.first ?? workloads);
  print(`${count} clients, ${first} workloads`);
  await server.ask({ do: 'load', workloads: first });
  const empty = await server.ask({ do: 'begin' });
  const clients = new Clients(built.path, address, rootCa);
  const plain = new Clients(built.path, plainAddress, rootCa);
  try {
    const opened = await clients.say(`open ${count}`);
    const used = await server.ask({ do: 'report' });
    show('first sync of all', `${(opened.ms / 1_000).toFixed(1)} s, lost ${opened.lost}`);
    show(
      '  memory before, most, after',
      `${empty.rssMb.toFixed(0)}, ${used.largestRssMb.toFixed(0)}, ${used.rssMb.toFixed(0)} MB`,
    );
    show('  longest turn, work alone, gc', turnsOf(used));
    const pushed = await fullPush(server, clients, count, workloads);
    if (values.probes !== '0') {
      await probes(server, clients, count, 'quiet');
      await server.ask({ do: 'churn', perSecond: Number(values.churn) });
      await probes(server, clients, count, `${values.churn} changes a second`);
      await server.ask({ do: 'churn', perSecond: 0 });
    }
    if (values.plain) {
      const other = await plainBytes(server, plain, count);
      show('ratio of bytes a second', (rate(pushed) / other).toFixed(2));
    }
  } finally {
    clients.stop();
    plain.stop();
    server.stop();
  }
}
