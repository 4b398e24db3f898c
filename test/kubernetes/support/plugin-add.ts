/** Calls the CNI plugin that an agent has installed. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { addEnvironment, runPlugin } from '../../cni/support/plugin.ts';
import type { PluginEnd } from '../../cni/support/plugin.ts';
import { ADDRESS } from './node-agent.ts';
import type { AgentNode } from './node-agent.ts';

/** The list that the agent writes. */
export const OWN_LIST = '02-weft-cni.conflist';

/** Runs the installed plugin with its installed entry, as a runtime does after the primary plugin. */
export async function addInstalled(
  { cni }: Pick<AgentNode, 'cni'>,
  pod: string,
  netns: string,
): Promise<PluginEnd> {
  const list = JSON.parse(await readFile(join(cni.netDir, OWN_LIST), 'utf8')) as {
    readonly name: string;
    readonly cniVersion: string;
    readonly plugins: readonly Readonly<Record<string, unknown>>[];
  };
  const { name, cniVersion } = list;
  const prevResult = {
    cniVersion,
    interfaces: [{ name: 'eth0', sandbox: netns }],
    ips: [{ address: `${ADDRESS}/24`, gateway: '10.9.0.1', interface: 0 }],
  };
  return runPlugin(
    addEnvironment(pod, { CNI_NETNS: netns }),
    JSON.stringify({ ...list.plugins.at(-1), name, cniVersion, prevResult }),
    join(cni.binDir, 'weft-cni'),
  );
}
