/** The plugin behind the real `bridge`, `host-local` and `portmap`, run by `cnitool` as a container runtime does. */
import { execFile } from 'node:child_process';
import { cp, mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { processEnvironment } from '../../lib/config/env.ts';
import { makeScratch } from '../support/leftovers.ts';
import { createNetns } from '../support/netns-kit.ts';
import type { TestNetns } from '../support/netns-kit.ts';
import { netnsTest } from '../support/netns-test.ts';
import { agentSite, killed, spawnAgent } from '../support/node-agent-kit.ts';
import type { AgentSite } from '../support/node-agent-kit.ts';
import { podRecord, writeRecord } from '../support/pod-records.ts';
import { startServingProxy } from '../support/serving-proxy.ts';
import { until } from '../support/until.ts';
import { cniPrograms, pluginFolder } from './support/programs.ts';
import type { CniPrograms } from './support/programs.ts';

const run = promisify(execFile);
const NETWORK = 'weft-test';
const PODS_AT_ONCE = 50;
const AMBIENT = { 'istio.io/dataplane-mode': 'ambient' };

const programs = await cniPrograms();
if ('missing' in programs) process.stdout.write(`SKIPPED cni: ${programs.missing}\n`);

/** A node with a bridge, a runtime's folders, and an agent that installs its plugin there. */
interface CniNode {
  readonly site: AgentSite;
  /** Runs a command of `cnitool` for a pod in its namespace; rejects with what a runtime would show. */
  cni(command: 'add' | 'check' | 'del', pod: string, netns: TestNetns): Promise<string>;
  /** Makes a pod's namespace and record. */
  pod(name: string, labels?: Readonly<Record<string, string>>): Promise<TestNetns>;
  /** Waits until the plugin is installed. */
  installed(): Promise<void>;
}

async function cniNode(t: ExecutionContext, found: CniPrograms): Promise<CniNode> {
  const dir = await makeScratch('cnitool');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const [netDir, runDir] = [join(dir, 'net.d'), join(dir, 'run')];
  await mkdir(netDir);
  await mkdir(runDir);
  const binDir = await pluginFolder(t, found);
  const primary = {
    cniVersion: '1.0.0',
    name: NETWORK,
    plugins: [
      {
        type: 'bridge',
        bridge: 'cni0',
        isGateway: true,
        ipam: { type: 'host-local', subnet: '10.77.0.0/16', dataDir: join(dir, 'ipam') },
      },
      { type: 'portmap', capabilities: { portMappings: true } },
    ],
  };
  await writeFile(join(netDir, '10-test.conflist'), JSON.stringify(primary));
  const site = await agentSite(t, {
    WEFT_NODE_AGENT_CNI: 'true',
    MOUNTED_CNI_NET_DIR: netDir,
    WEFT_NODE_AGENT_CNI_BIN_DIR: binDir,
    CNI_AGENT_RUN_DIR: runDir,
  });
  const host = await createNetns(t, 'host');
  // cnitool reads the first list of this name; the runtime's own order is not its concern.
  const readDir = join(dir, 'read.d');
  await mkdir(readDir);
  return {
    site,
    cni: async (command, pod, netns) => {
      const [namespace, name] = pod.split('/');
      const { stdout } = await run(
        'ip',
        ['netns', 'exec', host.name, found.cnitool, command, NETWORK, netns.path],
        {
          env: {
            PATH: processEnvironment()['PATH'],
            CNI_PATH: binDir,
            NETCONFPATH: readDir,
            CNI_ARGS: `IgnoreUnknown=1;K8S_POD_NAMESPACE=${namespace};K8S_POD_NAME=${name}`,
          },
        },
      ).catch((error: { readonly stdout: string; readonly stderr: string }) => {
        throw new Error(`${error.stdout}${error.stderr}`);
      });
      return stdout;
    },
    pod: async (name, labels = {}) => {
      const netns = await createNetns(t, name);
      const record = podRecord({ uid: `u-${name}`, name, netns: netns.path, labels });
      await writeRecord(site.podsDir, record.uid, record);
      return netns;
    },
    installed: async () => {
      const own = '02-weft-cni.conflist';
      await until(() => cp(join(netDir, own), join(readDir, own)).then(() => true), { what: own });
    },
  };
}

/** Tries again as kubelet does, which takes a failed sandbox down first: the agent's time may be over on a busy machine. */
function addWhenReady(node: CniNode, pod: string, netns: TestNetns): Promise<string> {
  return until(
    async () => {
      try {
        return await node.cni('add', pod, netns);
      } catch (error) {
        await node.cni('del', pod, netns);
        throw error;
      }
    },
    { what: `${pod} starts` },
  );
}

const hasRules = async (netns: TestNetns): Promise<boolean> =>
  (await netns.exec('iptables-nft-save')).includes('ISTIO_OUTPUT');

/** Declares a test, which is skipped where the programs are missing. */
function cniTest(title: string, body: (t: ExecutionContext, node: CniNode) => Promise<void>): void {
  if ('missing' in programs) {
    test.skip(`${title}: ${programs.missing}`, () => undefined);
    return;
  }
  netnsTest(title, async (t) => body(t, await cniNode(t, programs)));
}

cniTest(
  'ADD of a pod of the mesh ends when its rules and listeners stand; others get neither',
  async (t, node) => {
    const proxy = startServingProxy(t, node.site.socket);
    spawnAgent(t, node.site);
    await node.installed();
    const inside = await node.pod('inside', AMBIENT);
    const outside = await node.pod('outside');
    await until(() => proxy.told.includes('session'), { what: 'the proxy is connected' });
    for (const round of [1, 2]) {
      const result = JSON.parse(await addWhenReady(node, 'demo/inside', inside)) as {
        readonly ips: readonly unknown[];
      };
      t.is(result.ips.length, 1, `round ${round}`);
      t.true(proxy.served.has('u-inside'));
      t.true(await hasRules(inside));
      await node.cni('add', 'demo/outside', outside);
      t.false(await hasRules(outside));
      await node.cni('check', 'demo/inside', inside);
      await node.cni('del', 'demo/inside', inside);
      await node.cni('del', 'demo/outside', outside);
    }
  },
);

cniTest('fifty pods at once, half of them of the mesh', async (t, node) => {
  const proxy = startServingProxy(t, node.site.socket);
  spawnAgent(t, node.site);
  await node.installed();
  await until(() => proxy.told.includes('session'), { what: 'the proxy is connected' });
  const names = Array.from({ length: PODS_AT_ONCE }, (_, index) => `p${index}`);
  const pods = await Promise.all(
    names.map(async (name, index) => ({
      name,
      member: index % 2 === 0,
      netns: await node.pod(name, index % 2 === 0 ? AMBIENT : {}),
    })),
  );
  await Promise.all(
    pods.map(({ name, netns, member }) =>
      member ? addWhenReady(node, `demo/${name}`, netns) : node.cni('add', `demo/${name}`, netns),
    ),
  );
  for (const { name, member } of pods) t.is(proxy.served.has(`u-${name}`), member, name);
});

cniTest(
  'agent killed: exempt pods start, and others do not while nobody can judge them',
  async (t, node) => {
    startServingProxy(t, node.site.socket);
    const agent = spawnAgent(t, node.site);
    await node.installed();
    await killed(agent);
    const netns = await node.pod('late', AMBIENT);
    await node.cni('add', 'kube-system/dns', netns);
    await node.cni('del', 'kube-system/dns', netns);
    await t.throwsAsync(node.cni('add', 'demo/late', netns), {
      message: /nobody can tell whether pod demo\/late belongs to the mesh/,
    });
    // A runtime cleans up after a failed ADD, without the agent.
    await node.cni('del', 'demo/late', netns);
    spawnAgent(t, node.site);
    await addWhenReady(node, 'demo/late', netns);
    t.true(await hasRules(netns));
  },
);
