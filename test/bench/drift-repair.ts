/**
 * Measures how long a node agent takes to find and repair what somebody changed, or to cut the pod off where it cannot:
 * `node test/bench/drift-repair.ts [--pods N] [--rounds N]`. The agent is a process with its usual settings; the time begins before
 * the change.
 */
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { closeFd, hasListeners, openNetns, policyRouting } from '../../lib/linux/netns.ts';
import { raiseFileLimit } from '../../lib/linux/process.ts';
import { LISTENER_PORTS } from '../../services/node-agent/listener-watch.ts';
import { askJson } from '../../services/local-mesh/unix-http.ts';
import { downWhenInterrupted } from '../support/interruption.ts';
import { createNetns } from '../support/netns-kit.ts';
import type { TestNetns } from '../support/netns-kit.ts';
import { agentSite, spawnAgent } from '../support/node-agent-kit.ts';
import type { SiteOwner } from '../support/node-agent-kit.ts';
import { seizeTable } from '../support/pod-faults.ts';
import { podRecord, writeRecord } from '../support/pod-records.ts';
import { ServingProxy } from '../support/serving-proxy.ts';
import { until } from '../support/until.ts';
import { median } from './lib/goal.ts';

/** Seconds within which drift must be repaired or the pod closed. */
const GOAL_SECONDS = 2;
const POLL_MS = 5;
/** Longer than any repair; a run that takes longer has failed. */
const GIVE_UP_MS = 60_000;
/** The agent looks every second; rounds must not all begin at the same moment of it. */
const SPREAD_MS = 1_000;
const OWN_LIST = '02-weft-cni.conflist';

const { values } = parseArgs({
  options: {
    pods: { type: 'string', default: '110' },
    rounds: { type: 'string', default: '10' },
  },
});
const podCount = Number(values.pods);
const rounds = Number(values.rounds);

/** The rules, the policy routing and the listeners of a pod as text. Handles and counters are left out. */
async function stateOf(netns: TestNetns): Promise<string> {
  const rules = await netns.exec('/usr/sbin/nft', 'list', 'ruleset');
  const fd = openNetns(netns.path);
  try {
    const routing = ([4, 6] as const).map((family) => policyRouting(fd, family, 100));
    const plain = rules.replaceAll(/packets \d+ bytes \d+/g, '');
    return JSON.stringify([plain, routing, hasListeners(fd, LISTENER_PORTS)]);
  } finally {
    closeFd(fd);
  }
}

/** Waits until the condition holds. */
async function eventually(
  condition: () => boolean | Promise<boolean>,
  what: string,
): Promise<void> {
  const end = performance.now() + GIVE_UP_MS;
  while (!(await condition())) {
    if (performance.now() > end) throw new Error(`not within ${GIVE_UP_MS} ms: ${what}`);
    await wait(POLL_MS);
  }
}

interface Enrolled {
  readonly uid: string;
  readonly netns: TestNetns;
}

/** A kind of drift: changes something of a pod, and resolves when it is right again. */
interface Kind {
  readonly label: string;
  readonly run: (pod: Enrolled) => Promise<void>;
  /** Ends what the kind has left; not timed. */
  readonly after?: () => Promise<void>;
}

function kinds(
  proxy: ServingProxy,
  site: { readonly netDir: string; readonly admin: string },
): readonly Kind[] {
  const restored = async (pod: Enrolled, change: () => Promise<unknown>): Promise<void> => {
    const before = await stateOf(pod.netns);
    await change();
    await eventually(async () => (await stateOf(pod.netns)) === before, `${pod.uid} is repaired`);
  };
  const exposed = async (uid: string): Promise<string | undefined> => {
    const question = { socket: site.admin, path: '/node-agent/enrolments' };
    const rows = await askJson<readonly { podUid: string; exposure?: string }[]>(question);
    return rows.find(({ podUid }) => podUid === uid)?.exposure;
  };
  const derived = async (
    change: (own: string, primary: string) => Promise<unknown>,
  ): Promise<void> => {
    const [own, primary] = [join(site.netDir, OWN_LIST), join(site.netDir, '10-net.conflist')];
    await change(own, primary);
    const { name } = JSON.parse(await readFile(primary, 'utf8')) as { readonly name: string };
    await eventually(async () => {
      const text = await readFile(own, 'utf8').catch(() => '');
      return text.includes('weft-cni') && text.includes(`"${name}"`);
    }, 'the list is derived again');
  };
  let count = 0;
  let release: (() => Promise<void>) | null = null;
  return [
    {
      label: 'rules flushed (nft flush ruleset)',
      run: (pod) => restored(pod, () => pod.netns.exec('/usr/sbin/nft', 'flush', 'ruleset')),
    },
    {
      label: 'a policy rule removed (ip rule del)',
      run: (pod) => restored(pod, () => pod.netns.ip('rule del lookup 100')),
    },
    {
      label: 'a listener killed',
      run: (pod) => restored(pod, async () => proxy.loseListener(pod.uid, 2)),
    },
    {
      label: 'the namespace replaced',
      run: (pod) => restored(pod, () => pod.netns.replace()),
    },
    {
      label: "the primary's list rewritten",
      run: () =>
        derived((_own, primary) => {
          count += 1;
          return writeFile(primary, listOf(`net${count}`));
        }),
    },
    {
      label: "Weft's list overwritten by the primary's",
      run: () => derived(async (own, primary) => writeFile(own, await readFile(primary))),
    },
    { label: "Weft's list removed", run: () => derived((own) => rm(own)) },
    {
      label: 'rules held by another program: the pod is cut off',
      run: async (pod) => {
        release = await seizeTable(pod.netns);
        await eventually(async () => (await exposed(pod.uid)) === 'cut', `${pod.uid} is cut off`);
      },
      after: async () => {
        await release?.();
        const uncut = async (): Promise<boolean> => {
          const question = { socket: site.admin, path: '/node-agent/enrolments' };
          const rows = await askJson<readonly { exposure?: string }[]>(question);
          return rows.every(({ exposure }) => exposure === undefined);
        };
        await eventually(uncut, 'the cut has ended');
      },
    },
  ];
}

function listOf(name: string): string {
  return JSON.stringify({ cniVersion: '1.0.0', name, plugins: [{ type: 'bridge' }] });
}

await using made = new AsyncDisposableStack();
const owner: SiteOwner = {
  teardown: (end) => made.defer(async () => end()),
  log: (line) => void process.stderr.write(`${line}\n`),
};
made.defer(downWhenInterrupted(() => made.disposeAsync()));
raiseFileLimit();
const site = await agentSite(owner, { WEFT_NODE_AGENT_CNI: 'true' });
const dir = dirname(site.podsDir);
const [netDir, binDir, runDir] = ['net.d', 'bin', 'run'].map((name) => join(dir, name)) as [
  string,
  string,
  string,
];
for (const folder of [netDir, binDir, runDir]) await mkdir(folder);
await writeFile(join(netDir, '10-net.conflist'), listOf('net'));
const admin = join(dir, 'admin.sock');
const environment = {
  ...site.environment,
  MOUNTED_CNI_NET_DIR: netDir,
  WEFT_NODE_AGENT_CNI_BIN_DIR: binDir,
  CNI_AGENT_RUN_DIR: runDir,
  WEFT_ADMIN_ADDRESS: `unix:${admin}`,
};
spawnAgent(owner, { ...site, environment });
const proxy = new ServingProxy(site.socket);
owner.teardown(() => proxy.stop());
proxy.client.start();
process.stderr.write(`bench: enrolling ${podCount} pods\n`);
const pods: Enrolled[] = [];
for (let index = 0; index < podCount; index += 1) {
  const uid = `u-${index}`;
  const netns = await createNetns(owner, `r${index}`);
  await writeRecord(site.podsDir, uid, podRecord({ uid, netns: netns.path }));
  pods.push({ uid, netns });
}
await until(
  async () => {
    const question = { socket: admin, path: '/node-agent/status' };
    const status = await askJson<{ pods: Record<string, number> }>(question);
    return status.pods['enabled'] === podCount;
  },
  { what: 'all pods to be enrolled', timeoutMs: 10 * GIVE_UP_MS },
);

const lines: string[] = [];
for (const { label, run, after } of kinds(proxy, { netDir, admin })) {
  process.stderr.write(`bench: ${label}\n`);
  const seconds: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const pod = pods[(lines.length * rounds + round) % pods.length] as Enrolled;
    await wait((SPREAD_MS * round) / rounds);
    const begun = performance.now();
    await run(pod);
    seconds.push((performance.now() - begun) / 1_000);
    await after?.();
  }
  const longest = Math.max(...seconds);
  const word = longest <= GOAL_SECONDS ? 'met' : 'not met';
  lines.push(
    `${label.padEnd(52)} ${median(seconds).toFixed(2).padStart(8)} ${longest.toFixed(2).padStart(8)}  ${word}`,
  );
}
process.stdout.write(
  `${podCount} pods, ${rounds} rounds of each kind; seconds from before the change until it is repaired; goal ≤ ${GOAL_SECONDS}\n\n` +
    `${' '.repeat(52)}   median  longest\n${lines.join('\n')}\n`,
);
