/**
 * Measures the processor time of Weft's containers and the start of many pods on a cluster, and kills the containers under load: `npm
 * run soak:cluster`, with `--measure N` seconds (60) without and with a load, `--pods N` (100) on a node, `--seconds N` (300) of kills,
 * and the `--profile` of the chart. Prints what it saw; ends with status 1 when a connection failed that no killed proxy carried.
 */
import { loadavg } from 'node:os';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { present } from '../../lib/errors/assert.ts';
import { until } from '../support/until.ts';
import { APP_PORT, app } from './support/app.ts';
import type { TestCluster } from './support/cluster.ts';
import { killLoop } from './support/kill-loop.ts';
import type { Kills } from './support/kill-loop.ts';
import { loadWhile } from './support/load.ts';
import type { LoadResult } from './support/load.ts';
import { SLACK_MS, explained, outageOf } from './support/outages.ts';
import type { Outage } from './support/outages.ts';
import { Owner } from './support/owner.ts';
import { isReady, podPerNode, podsOf, rolledOut, urlOf } from './support/pods.ts';
import { prepareCluster } from './support/prepare.ts';
import { processorTimes } from './support/processor-time.ts';
import { startTimes } from './support/start-times.ts';
import { SYSTEM, enrol, installWeft } from './support/weft.ts';

const NAMESPACE = 'mesh';
const RECOVERY_TIMEOUT_MS = 300_000;
/** The load goes on for this time after the last kill's traces are gone. */
const AFTERWARDS_MS = 10_000;

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '300' },
    pods: { type: 'string', default: '100' },
    measure: { type: 'string', default: '60' },
    profile: { type: 'string', default: 'standard' },
  },
});
const seconds = Number(values.seconds);
const pods = Number(values.pods);
const measureMs = Number(values.measure) * 1_000;
const say = (text: string): void => void process.stdout.write(`${text}\n`);

/** A load from a pod of one node to a pod of another, or of the same one. */
interface Way {
  readonly nodes: readonly string[];
  readonly load: LoadResult;
}

/** Puts loads on all ways between the nodes while `body` runs. */
async function onAllWays(cluster: TestCluster, body: () => Promise<void>): Promise<readonly Way[]> {
  const ways: Way[] = [];
  const clients = await podPerNode(cluster, NAMESPACE, 'client');
  const servers = await podPerNode(cluster, NAMESPACE, 'web');
  let all = body;
  for (const pod of clients) {
    for (const server of servers) {
      const nodes = [pod, server].map(({ spec }) => present(spec.nodeName, 'a node'));
      const { ip } = present(server.status.podIPs[0], 'an address');
      const inner = all;
      all = async () => {
        const from = { namespace: NAMESPACE, pod };
        ways.push({ nodes, load: await loadWhile(cluster, from, urlOf(ip, APP_PORT), inner) });
      };
    }
  }
  await all();
  return ways;
}

/** Kills for the time given; returns the number of failures that nothing explains. */
async function kill(cluster: TestCluster): Promise<number> {
  let kills: Kills = { counts: {}, proxies: [] };
  const ways = await onAllWays(cluster, async () => {
    kills = await killLoop(cluster, performance.now() + seconds * 1_000);
    await until(() => allReady(cluster), {
      what: 'every pod of Weft is ready again',
      timeoutMs: RECOVERY_TIMEOUT_MS,
    });
    await pause(AFTERWARDS_MS);
  });
  say(`kills: ${JSON.stringify(kills.counts)}; load ${loadavg()[0]?.toFixed(0)}`);
  const outages = kills.proxies.map((killed) => {
    const within = ways.find(({ nodes }) => nodes.every((node) => node === killed.node));
    return outageOf(killed, present(within, 'a way within the node').load.answeredSince);
  });
  const lengths = (of: (outage: Outage) => number): string =>
    describe(outages.map(of).toSorted((a, b) => a - b));
  say(`times without a proxy: ${lengths(({ from, to }) => to - from)}`);
  say(`  until kubelet started it again: ${lengths(({ restartMs }) => restartMs)}`);
  say(`  the rest: ${lengths(({ from, to, restartMs }) => to - from - restartMs)}`);
  const early = outages.filter(({ ready, to }) => to > ready + SLACK_MS).length;
  say(`  ${early} were ready before they served, as they had no certificates`);
  let unexplained = 0;
  for (const { nodes, load } of ways) {
    const { fresh, connections, failures } = load;
    const others = failures.filter((failure) => !explained(failure, nodes, outages));
    unexplained += others.length;
    const failed = `${failures.length} failed, of these ${others.length} without a killed proxy`;
    say(`${nodes.join(' to ')}: ${fresh} new connections, ${connections} kept, ${failed}`);
    for (const failure of others) say(`  ${JSON.stringify(failure)}`);
    if (fresh === 0) throw new Error(`nothing went from ${nodes.join(' to ')}`);
  }
  if (unexplained > 0) say(`outages: ${JSON.stringify(outages)}`);
  return unexplained;
}

async function allReady(cluster: TestCluster): Promise<boolean> {
  const all = await podsOf(cluster, SYSTEM, 'weft', 'app.kubernetes.io/part-of');
  return all.every(isReady);
}

/** Measures processor time without a load, and with one from a pod of one node to a pod of the other. */
async function measure(cluster: TestCluster): Promise<void> {
  const idle = await processorTimes(cluster, () => pause(measureMs));
  const [pod] = await podPerNode(cluster, NAMESPACE, 'client');
  const [, server] = await podPerNode(cluster, NAMESPACE, 'web');
  const from = { namespace: NAMESPACE, pod: present(pod, 'a client') };
  const { ip } = present(server?.status.podIPs[0], 'an address');
  let result: LoadResult | null = null;
  const loaded = await processorTimes(cluster, async () => {
    result = await loadWhile(cluster, from, urlOf(ip, APP_PORT), () => pause(measureMs));
  });
  const { fresh, kept } = present<LoadResult>(result, 'the load has ended');
  const rate = (count: number): number => Math.round((count / measureMs) * 1_000);
  say(`load: ${rate(fresh)} new connections a second, ${rate(kept)} answers of kept ones`);
  for (const [name, share] of idle) {
    const under = present(loaded.get(name), 'the container is still there');
    say(`${name}: ${share.toFixed(1)} m idle, ${under.toFixed(1)} m under load`);
  }
}

/** Measures the start of pods outside and inside the mesh. */
async function startPods(cluster: TestCluster): Promise<void> {
  const node = present(cluster.nodes[0], 'a node').place.name;
  for (const namespace of ['outside', 'inside']) {
    await cluster.kubectl('create', 'namespace', namespace);
    if (namespace === 'inside') await enrol(cluster, namespace);
    const times = await startTimes(cluster, { namespace, node, count: pods });
    say(`${pods} pods ${namespace} the mesh, from creation to ready: ${describe(times)}`);
    await cluster.kubectl('delete', 'namespace', namespace, '--timeout=300s');
  }
}

function describe(sorted: readonly number[]): string {
  if (sorted.length === 0) return 'none';
  const at = (share: number): string => {
    const index = Math.min(sorted.length - 1, Math.floor(share * sorted.length));
    return `${Math.round(present(sorted[index], 'a value'))} ms`;
  };
  return `${sorted.length}, median ${at(0.5)}, p90 ${at(0.9)}, longest ${at(1)}`;
}

const preparation = await prepareCluster();
if ('missing' in preparation) {
  say(`SKIPPED soak:cluster: ${preparation.missing}`);
} else {
  const owner = new Owner();
  try {
    const cluster = await preparation.start(owner);
    await installWeft(cluster, preparation.helm, [`profile=${values.profile}`]);
    await cluster.kubectl('create', 'namespace', NAMESPACE);
    await enrol(cluster, NAMESPACE);
    await cluster.objects.apply(...app(NAMESPACE, 'web', 2), ...app(NAMESPACE, 'client', 2));
    for (const name of ['web', 'client']) await rolledOut(cluster, NAMESPACE, `deployment/${name}`);
    if (measureMs > 0) await measure(cluster);
    if (pods > 0) await startPods(cluster);
    if (seconds > 0 && (await kill(cluster)) > 0) process.exitCode = 1;
  } catch (error) {
    process.exitCode = 1;
    say(String(error));
  } finally {
    await owner.end();
  }
}
