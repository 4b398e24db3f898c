/** Scales the proxies of a node up and kills the actors that they need within a second, round after round, on a busy machine. */
import { Worker } from 'node:worker_threads';
import { until } from '../support/until.ts';
import { ENOUGH } from './rig.ts';
import type { Rig } from './rig.ts';

const PROXY = 'node-1-proxy';
/** The services that a proxy needs. */
const KILLED = [
  'redis',
  'control-plane',
  'ca',
  'policy-evaluator',
  'xds-ingester',
  'node-1-agent',
] as const;
const WITHIN_MS = 1_000;
const GOES_ON_MS = 120_000;
/** Keeps one core busy in turns of a few milliseconds, as a build or a batch job would. */
const BUSY =
  'for (;;) { const end = performance.now() + 1_000; while (performance.now() < end) Math.sqrt(end); }';

/** The result of one round: requests, failures, and the delays of the kills in milliseconds. */
export interface Round {
  readonly answers: number;
  readonly failed: readonly string[];
  readonly delaysMs: Readonly<Record<string, number>>;
}

/** Keeps `threads` threads busy until the returned function is called. */
export function busyMachine(threads: number): () => Promise<void> {
  const workers = Array.from({ length: threads }, () => new Worker(BUSY, { eval: true }));
  return async () => {
    await Promise.all(workers.map((worker) => worker.terminate()));
  };
}

/** Runs one round. The load starts and ends with the round. */
export async function killAtOnce(rig: Rig): Promise<Round> {
  const { compose } = rig;
  const load = await compose.load('client-server', `http://${await rig.answered()}/`);
  const goesOn = async (what: string): Promise<void> => {
    const wanted = load.answers + ENOUGH;
    await until(() => load.answers >= wanted, { what: `answers ${what}`, timeoutMs: GOES_ON_MS });
  };
  await goesOn('before');
  const delaysMs = Object.fromEntries(
    KILLED.map((service) => [service, Math.random() * WITHIN_MS]),
  );
  await compose.call('up', '--detach', '--no-build', '--no-recreate', '--scale', `${PROXY}=3`);
  await Promise.all(KILLED.map((service) => killAfter(rig, service, delaysMs[service] ?? 0)));
  await goesOn('after the kills');
  for (const service of KILLED) {
    for (const container of await compose.containers(service)) await rig.healthy(container);
  }
  for (const container of await compose.containers(PROXY)) await rig.healthy(container);
  await goesOn('with three proxies');
  await compose.call('up', '--detach', '--no-build', '--no-recreate', '--scale', `${PROXY}=1`);
  await goesOn('with one proxy');
  const failed = await load.stop();
  return { answers: load.answers, failed, delaysMs };
}

/** Kills the first process of each container of a service; the engine starts it again. */
async function killAfter({ compose, host }: Rig, service: string, delayMs: number): Promise<void> {
  const containers = await compose.containers(service);
  const facts = await host.inspect(...containers);
  await new Promise((resolve) => setTimeout(resolve, delayMs));
  for (const { State } of facts) if (State.Pid > 0) process.kill(State.Pid, 'SIGKILL');
}
