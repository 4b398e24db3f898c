/** A node agent on a node of its own, under its role. */
import { randomBytes } from 'node:crypto';
import { cp, mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { agentSite, startAgent } from '../../support/node-agent-kit.ts';
import type { AgentSite, TestAgent } from '../../support/node-agent-kit.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { connectNetns, createNetns } from '../../support/netns-kit.ts';
import type { TestNetns } from '../../support/netns-kit.ts';
import { NodeProc } from '../../support/pod-process.ts';
import type { Cluster, StoredTestObject } from './cluster.ts';
import type { Gateway } from './gateway.ts';
import { underRole } from './rbac.ts';
import type { RoleAccount } from './rbac.ts';

const REDIRECTION = 'ambient.istio.io/redirection';
/** The address of the pod of {@link sandbox}. */
export const ADDRESS = '10.9.0.2';

/** A node without an agent yet. */
export interface AgentNode {
  readonly node: string;
  /** The namespace of Weft's own pods. */
  readonly system: string;
  readonly site: AgentSite;
  readonly account: RoleAccount;
  /** The namespace of the node. */
  readonly host: TestNetns;
  readonly proc: NodeProc;
  readonly cni: CniFolders;
}

/** The folders of a container runtime and its plugins. */
export interface CniFolders {
  readonly netDir: string;
  readonly binDir: string;
  readonly runDir: string;
}

/** How the agent of a node is started. */
export interface AgentNodeOptions {
  readonly via?: Gateway;
  /** Whether the agent installs the CNI plugin. The token of its helper ends with the Node, which is registered then. */
  readonly cni?: boolean;
  /** Another node for the same account. */
  readonly account?: { readonly system: string; readonly account: RoleAccount };
  readonly environment?: Readonly<Record<string, string>>;
}

/** Makes a node with a runtime whose primary CNI plugin is Calico. */
export async function agentNode(
  t: ExecutionContext,
  cluster: Cluster,
  { via, cni = false, ...options }: AgentNodeOptions = {},
): Promise<AgentNode> {
  const node = `node-${randomBytes(4).toString('hex')}`;
  const system = options.account?.system ?? (await cluster.namespace('system'));
  const account =
    options.account?.account ??
    (await underRole(cluster, 'weft-node-agent', { namespace: system }));
  if (cni) {
    await underRole(cluster, 'weft-cni', { namespace: system });
    await cluster.apply({ apiVersion: 'v1', kind: 'Node', metadata: { name: node } });
  }
  const host = await createNetns(t, 'host');
  const proc = await NodeProc.create(t, host);
  const folders = await cniFolders(t);
  const site = await agentSite(t, {
    REDIS_USERNAME: `node-agent.${node}`,
    WEFT_SOURCE: 'kubernetes',
    WEFT_NODE_AGENT_PROC_DIR: proc.dir,
    KUBECONFIG: await cluster.kubeconfig({
      token: account.token,
      ...(via === undefined ? {} : { via }),
    }),
    ...(cni
      ? {
          WEFT_NODE_AGENT_CNI: 'true',
          MOUNTED_CNI_NET_DIR: folders.netDir,
          WEFT_NODE_AGENT_CNI_BIN_DIR: folders.binDir,
          CNI_AGENT_RUN_DIR: folders.runDir,
        }
      : {}),
    POD_NAMESPACE: system,
    ...options.environment,
  });
  const { WEFT_NODE_AGENT_PODS_DIR: _, ...environment } = site.environment;
  return {
    node,
    system,
    site: { ...site, environment: { ...environment, NODE_NAME: node } },
    account,
    host,
    proc,
    cni: folders,
  };
}

async function cniFolders(t: ExecutionContext): Promise<CniFolders> {
  const dir = await makeScratch('runtime');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const folders = {
    netDir: join(dir, 'net.d'),
    binDir: join(dir, 'bin'),
    runDir: join(dir, 'run'),
  };
  for (const folder of Object.values(folders)) await mkdir(folder);
  const primary = '10-calico.conflist';
  await cp(
    new URL(`../../cni/fixtures/${primary}`, import.meta.url),
    join(folders.netDir, primary),
  );
  return folders;
}

/** Starts the agent of a node in this process. */
export function agentOf(t: ExecutionContext, { site, node }: AgentNode): Promise<TestAgent> {
  return startAgent(t, site, node);
}

/** Makes a namespace with {@link ADDRESS} on the node. */
export async function sandboxNetns(
  t: ExecutionContext,
  { host }: Pick<AgentNode, 'host'>,
): Promise<TestNetns> {
  const netns = await createNetns(t, 'pod');
  await connectNetns(
    { netns, device: 'eth0', addresses: [`${ADDRESS}/24`] },
    { netns: host, device: 'veth0', addresses: ['10.9.0.1/24'] },
  );
  return netns;
}

/** Makes such a namespace with a process of that pod in it. */
export async function sandbox(
  t: ExecutionContext,
  node: Pick<AgentNode, 'host' | 'proc'>,
  uid: string,
): Promise<TestNetns> {
  const netns = await sandboxNetns(t, node);
  await node.proc.addPod(t, netns, uid);
  return netns;
}

/** Returns the annotation that tells a pod's enrolment. */
export async function redirection(
  cluster: Cluster,
  stored: StoredTestObject,
): Promise<string | undefined> {
  const { metadata } = (await cluster.get(stored)) as {
    readonly metadata: { readonly annotations?: Readonly<Record<string, string>> };
  };
  return metadata.annotations?.[REDIRECTION];
}

/** Returns the messages of a namespace's Events. */
export async function events(cluster: Cluster, namespace: string): Promise<readonly string[]> {
  const list = (await cluster.admin.get(`/api/v1/namespaces/${namespace}/events`)) as {
    readonly items: readonly { readonly message: string }[];
  };
  return list.items.map(({ message }) => message);
}
