/** Measures the processor time of the node agent's look for drift, over real namespaces with rules, routes and listeners. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { closeFd, openNetns } from '../../../lib/linux/netns.ts';
import { raiseFileLimit } from '../../../lib/linux/process.ts';
import { listenTcp } from '../../../lib/linux/sockets.ts';
import { PROXY_PORTS } from '../../../lib/redirect/rules.ts';
import { nodeEnrolments } from '../../support/node-enrolments.ts';
import { podRecord } from '../../support/pod-records.ts';
import { netnsName } from '../../support/leftovers.ts';

/** Writing the rules of a pod takes tens of milliseconds; nothing else of the agent may run while it is measured. */
const REST_MS = 1_500;

/** Enrols so many pods, then returns the hundredths of one core that the check takes over `seconds`. */
export async function driftCost(pods: number, seconds: number): Promise<number> {
  raiseFileLimit();
  const scratch = await mkdtemp(join(tmpdir(), 'weft-bench-drift-'));
  const names = Array.from({ length: pods }, (_, index) => netnsName(`d${index}`));
  const listeners: number[] = [];
  try {
    await sh(names.flatMap((name) => [`ip netns add ${name}`, `ip -n ${name} link set lo up`]));
    const { enrolments: agent, config } = await nodeEnrolments(scratch);
    const records = names.map((uid) => podRecord({ uid, netns: join('/run/netns', uid) }));
    for (const { netns } of records) listeners.push(...listenIn(netns ?? ''));
    await agent.update({
      pods: new Map(records.map((record) => [record.uid, record])),
      unreadable: new Set(),
    });
    const enrolled = agent.states().get('enabled');
    if (enrolled !== pods) {
      const reason = agent.view().find((pod) => pod.reason !== undefined)?.reason;
      throw new Error(`${enrolled} of ${pods} pods are enrolled: ${reason}`);
    }
    agent.watch(config.driftIntervalMs);
    await wait(REST_MS);
    const before = process.cpuUsage();
    await wait(seconds * 1_000);
    const { user, system } = process.cpuUsage(before);
    const repairs = agent.view().reduce((sum, { driftRepairs }) => sum + driftRepairs, 0);
    await agent.stop();
    if (repairs > 0) throw new Error(`${repairs} repairs of what nobody changed`);
    return (user + system) / (seconds * 10_000);
  } finally {
    for (const fd of listeners) closeFd(fd);
    await sh(names.map((name) => `ip netns del ${name}`));
    await rm(scratch, { recursive: true });
  }
}

function listenIn(path: string): readonly number[] {
  const netnsFd = openNetns(path);
  try {
    const { outbound, inbound, hbone } = PROXY_PORTS;
    return [outbound, inbound, hbone].map(
      (port) =>
        listenTcp({ netnsFd, address: '::', port, mark: 0, reusePort: false, transparent: 'off' })
          .fd,
    );
  } finally {
    closeFd(netnsFd);
  }
}

async function sh(commands: readonly string[]): Promise<void> {
  const child = spawn('sh', ['-e', '-s'], { stdio: ['pipe', 'ignore', 'inherit'] });
  child.stdin.end(`${commands.join('\n')}\n`);
  const [status] = (await once(child, 'exit')) as [number | null];
  if (status !== 0) throw new Error(`a command for namespaces ended with ${status}`);
}
