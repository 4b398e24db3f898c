/**
 * Measures what it costs the delta server to push a whole mesh, and a single change, to many clients. The clients are a
 * compiled program that throws away what it is sent; a plain `node:http2` server sends it as many bytes for comparison.
 */
import { fork, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { buildPushClient } from './client.ts';
import type { ServerCommand, ServerReport, ServerStarted } from './messages.ts';

const FULL_PUSH_LIMIT_S = 300;
/** Longer than changes are gathered under churn, so that each probe is a push of its own. */
const PROBE_PAUSE_MS = 1_300;
const MB = 1e6;

/** One line that the program of the clients prints. */
interface ClientAnswer {
  readonly done: boolean;
  readonly ms: number;
  readonly bytes: number;
  readonly lost: number;
  readonly reasons: readonly string[] | null;
  readonly count: number;
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

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

/** The program of the clients. */
class Clients {
  readonly #process: ChildProcess;
  readonly #answers: AsyncIterator<string>;

  constructor(program: string, address: string, rootCa: string) {
    this.#process = spawn(program, ['-address', address, '-ca', rootCa, '-token', 'bench'], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    const { stdout } = this.#process;
    if (stdout === null) throw new TypeError('the clients have no output');
    this.#answers = createInterface({ input: stdout })[Symbol.asyncIterator]();
  }

  say(command: string): Promise<ClientAnswer> {
    this.#process.stdin?.write(`${command}\n`);
    return this.answer();
  }

  async answer(): Promise<ClientAnswer> {
    const line = await this.#answers.next();
    if (line.done === true) throw new Error('the clients have ended');
    const answer = JSON.parse(line.value) as ClientAnswer;
    if (!answer.done) print(`  NOT DONE in time; lost ${answer.lost}: ${String(answer.reasons)}`);
    return answer;
  }

  stop(): void {
    this.#process.stdin?.end();
    this.#process.kill();
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
  show('  longest turn', `${used.longestTurnMs.toFixed(1)} ms`);
  show('  processor time', `${(used.cpuMs / 1_000).toFixed(1)} s`);
  return answer;
}

async function probes(server: Server, clients: Clients, what: string): Promise<void> {
  await clients.say('ages');
  await server.ask({ do: 'begin' });
  for (let index = 0; index < Number(values.probes); index += 1) {
    await server.ask({ do: 'probe' });
    await sleep(PROBE_PAUSE_MS);
  }
  await sleep(PROBE_PAUSE_MS);
  const { count, p50, p99, max, lost } = await clients.say('ages');
  const { longestTurnMs } = await server.ask({ do: 'report' });
  show(
    `one change, ${what}: p50, p99, max`,
    [p50, p99, max].map((ms) => `${ms.toFixed(0)} ms`).join(', '),
  );
  show('  arrivals, lost, longest turn', `${count}, ${lost}, ${longestTurnMs.toFixed(1)} ms`);
}

/** As many bytes from the plain server; returns MB a second. */
async function plainBytes(server: Server, clients: Clients, count: number): Promise<number> {
  await server.ask({ do: 'begin' });
  const answer = await clients.say(`plain ${count} ${FULL_PUSH_LIMIT_S}`);
  const used = await server.ask({ do: 'report' });
  show('node:http2', `${(answer.ms / 1_000).toFixed(1)} s, ${rate(answer).toFixed(0)} MB/s`);
  show('  longest turn', `${used.longestTurnMs.toFixed(1)} ms`);
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
    const { rssMb, largestRssMb, longestTurnMs } = await server.ask({ do: 'report' });
    show('first sync of all', `${(opened.ms / 1_000).toFixed(1)} s, lost ${opened.lost}`);
    show(
      '  memory before, most, after',
      `${empty.rssMb.toFixed(0)}, ${largestRssMb.toFixed(0)}, ${rssMb.toFixed(0)} MB`,
    );
    show('  longest turn', `${longestTurnMs.toFixed(1)} ms`);
    const pushed = await fullPush(server, clients, count, workloads);
    if (values.probes !== '0') {
      await probes(server, clients, 'quiet');
      await server.ask({ do: 'churn', perSecond: Number(values.churn) });
      await probes(server, clients, `${values.churn} changes a second`);
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
