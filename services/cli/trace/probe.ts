/** Makes a connection from inside a pod, for a trace. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { systemClock } from '../../../lib/clock/clock.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';

/** Time limit for the connect. A pod reaches its own proxy at once, but on a busy machine one or two processes must start first. */
const CONNECT_TIMEOUT_MS = 20_000;
/** Time limit for the answer. */
const ANSWER_TIMEOUT_MS = 5_000;

/** Interval between reads of the probe's output. */
const POLL_MS = 10;

/** Runs in the pod: prints its end of the connection, sends the text, prints the first answer and the end. */
const SCRIPT = `
const [host, port, text] = process.argv.slice(1);
const socket = require('node:net').connect({ host, port: Number(port) });
const say = (words) => process.stdout.write(words + '\\n');
socket.once('connect', () => {
  say('connected ' + socket.localAddress + ' ' + socket.localPort);
  if (text !== '') socket.write(text);
});
socket.once('data', () => say('answered'));
socket.on('error', (error) => say('failed ' + (error.message || error.code)));
socket.on('close', () => say('closed'));
process.stdin.resume().on('end', () => socket.end());
`;

/** A probe that holds its connection open. */
export interface Probe {
  /** `ip:port` of the pod's end. */
  readonly client: string;
  /** Lets the connection end; resolves when it has. */
  end(): Promise<void>;
}

/** The destination of a probe and the text it sends. */
export interface ProbeTarget {
  readonly host: string;
  readonly port: number;
  /** When empty, the probe sends nothing and waits for no answer. */
  readonly text: string;
}

/** Connects from the namespaces that the command `enter` enters. Throws UPSTREAM_CONNECT when that fails. */
export async function probe(enter: readonly string[], target: ProbeTarget): Promise<Probe> {
  const [program = '', ...parameters] = enter;
  const command = [process.execPath, '-e', SCRIPT, target.host, String(target.port), target.text];
  const child = spawn(program, [...parameters, ...command], { stdio: ['pipe', 'pipe', 'inherit'] });
  child.stdin.on('error', () => undefined);
  const told: string[] = [];
  const lines = createInterface({ input: child.stdout });
  lines.on('line', (line) => told.push(line));
  try {
    const client = await connected(child, told);
    if (target.text !== '') {
      await waitFor(told, ANSWER_TIMEOUT_MS, (line) => line === 'answered' || line === 'closed');
    }
    return { client, end: () => end(child) };
  } catch (error) {
    await end(child);
    throw error;
  }
}

async function connected(child: ChildProcess, told: readonly string[]): Promise<string> {
  const line = await Promise.race([
    waitFor(told, CONNECT_TIMEOUT_MS, (text) => /^(connected|failed) /.test(text)),
    once(child, 'error').then(([error]) => `failed ${String(error)}`),
  ]);
  const [how, ip = '', port = ''] = (line ?? 'failed by no answer in time').split(' ');
  if (how !== 'connected') {
    throw new MeshError(
      'UPSTREAM_CONNECT',
      `the pod cannot connect: ${line ?? 'no answer in time'}`,
    );
  }
  return ip.includes(':') ? `[${ip}]:${port}` : `${ip}:${port}`;
}

/** The first matching line; null when none comes in time. */
async function waitFor(
  told: readonly string[],
  timeoutMs: number,
  wanted: (line: string) => boolean,
): Promise<string | null> {
  const endMs = performance.now() + timeoutMs;
  while (performance.now() < endMs) {
    const line = told.find(wanted);
    if (line !== undefined) return line;
    await systemClock.sleep(POLL_MS);
  }
  return null;
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  child.stdin?.end();
  const timer = systemClock.after(CONNECT_TIMEOUT_MS, () => child.kill('SIGKILL'));
  await exited;
  timer.cancel();
}
