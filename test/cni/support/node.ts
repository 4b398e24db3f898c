/** A node for `cnitool`: the real `bridge`, `host-local` and `portmap`, and an agent that installs its plugin behind them. */
import { execFile } from 'node:child_process';
import { cp, mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { processEnvironment } from '../../../lib/config/env.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { createNetns } from '../../support/netns-kit.ts';
import type { TestNetns } from '../../support/netns-kit.ts';
import { agentSite } from '../../support/node-agent-kit.ts';
import type { AgentSite, SiteOwner } from '../../support/node-agent-kit.ts';
import { podRecord, writeRecord } from '../../support/pod-records.ts';
import { until } from '../../support/until.ts';
import { pluginFolder } from './programs.ts';
import type { CniPrograms } from './programs.ts';

const run = promisify(execFile);
const NETWORK = 'weft-test';
/** The bridge in {@link CniNode.host}. Pods get its addresses from the second on, in the order in which they are added. */
export const BRIDGE = 'cni0';
/** The first three parts of the pods' addresses. */
export const POD_PREFIX = '10.77.0';
/** Labels of a pod of the mesh. */
export const AMBIENT: Readonly<Record<string, string>> = { 'istio.io/dataplane-mode': 'ambient' };

/** A node with a bridge, a runtime's folders, and an agent that installs its plugin there. */
export interface CniNode {
  /** Holds the bridge. */
  readonly host: TestNetns;
  readonly site: AgentSite;
  /** Runs a command of `cnitool` for a pod in its namespace; rejects with what a runtime would show. `address` asks IPAM for that one. */
  cni(
    command: 'add' | 'check' | 'del' | 'gc' | 'status',
    pod: string,
    netns: TestNetns,
    address?: string,
  ): Promise<string>;
  /** Makes a pod's namespace and record. */
  pod(name: string, labels?: Readonly<Record<string, string>>): Promise<TestNetns>;
  /** Waits until the plugin is installed. */
  installed(): Promise<void>;
}

/** Makes a node. */
export async function cniNode(t: SiteOwner, found: CniPrograms): Promise<CniNode> {
  const dir = await makeScratch('cnitool');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const [netDir, runDir] = [join(dir, 'net.d'), join(dir, 'run')];
  await mkdir(netDir);
  await mkdir(runDir);
  const binDir = await pluginFolder(t, found);
  const primary = {
    cniVersion: '1.1.0',
    name: NETWORK,
    plugins: [
      {
        type: 'bridge',
        bridge: BRIDGE,
        isGateway: true,
        ipam: { type: 'host-local', subnet: `${POD_PREFIX}.0/16`, dataDir: join(dir, 'ipam') },
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
    host,
    site,
    cni: async (command, pod, netns, address) => {
      const [namespace, name] = pod.split('/');
      const args = ['IgnoreUnknown=1', `K8S_POD_NAMESPACE=${namespace}`, `K8S_POD_NAME=${name}`];
      if (address !== undefined) args.push(`IP=${address}`);
      const { stdout } = await run(
        'ip',
        ['netns', 'exec', host.name, found.cnitool, command, NETWORK, netns.path],
        {
          env: {
            PATH: processEnvironment()['PATH'],
            CNI_PATH: binDir,
            NETCONFPATH: readDir,
            CNI_ARGS: args.join(';'),
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
export function addWhenReady(
  node: CniNode,
  pod: string,
  netns: TestNetns,
  { timeoutMs = 0, address }: { readonly timeoutMs?: number; readonly address?: string } = {},
): Promise<string> {
  return until(
    async () => {
      try {
        return await node.cni('add', pod, netns, address);
      } catch (error) {
        await node.cni('del', pod, netns);
        throw error;
      }
    },
    { what: `${pod} starts`, timeoutMs },
  );
}
