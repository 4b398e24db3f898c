/** A cluster of two nodes, and what tests do with it. */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { present } from '../../../lib/errors/assert.ts';
import { Cluster } from '../../kubernetes/support/cluster.ts';
import { startApiServer } from '../../kubernetes/support/api-server.ts';
import type { ApiServer } from '../../kubernetes/support/api-server.ts';
import { kubeconfigText } from '../../kubernetes/support/kubeconfig.ts';
import type { TeardownOwner } from '../../support/actor-context.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { until } from '../../support/until.ts';
import { ownImages } from './images.ts';
import { SERVER_ADDRESS, createNetwork } from './network.ts';
import type { ClusterNetwork } from './network.ts';
import { startNode } from './node.ts';
import type { ClusterNode } from './node.ts';
import { Program } from './program.ts';
import type { ClusterPrograms } from './programs.ts';
import { relayInto } from './relay.ts';

const run = promisify(execFile);
const READY_TIMEOUT_MS = 180_000;
const MAX_OUTPUT_BYTES = 64 * 1024 * 1024;
const DNS = new URL('../manifests/coredns.yaml', import.meta.url);

/** A running cluster. */
export interface TestCluster {
  /** Holds what belongs to the whole cluster. */
  readonly folder: string;
  readonly network: ClusterNetwork;
  readonly server: ApiServer;
  readonly nodes: readonly ClusterNode[];
  /** Objects, with an administrator's rights. */
  readonly objects: Cluster;
  /** Path of an administrator's kubeconfig for programs on this machine. */
  readonly kubeconfig: string;
  readonly kubectlPath: string;
  /** Runs kubectl; returns its output, and rejects with its complaint. */
  kubectl(...words: readonly string[]): Promise<string>;
}

/**
 * Starts a cluster; it is complete when both nodes are ready and names are answered. The owner's end removes all of it, also after
 * a failed start.
 */
export async function startCluster(
  t: TeardownOwner,
  programs: ClusterPrograms,
  weftArchive: string,
): Promise<TestCluster> {
  const folder = await makeScratch('cluster');
  t.teardown(() => rm(folder, { recursive: true, force: true, maxRetries: 10 }));
  const network = await createNetwork(t);
  const [images, tokens] = [
    await ownImages(folder, programs.coredns),
    network.nodes.map(() => randomBytes(16).toString('hex')),
  ];
  const server = await startServer(t, programs, network, tokens);
  await startControllers(t, programs, { network, server, folder });
  const nodes = await Promise.all(
    network.nodes.map((place, index) =>
      startNode(t, {
        place,
        programs,
        images: { ...images, '2-weft': weftArchive },
        kubeletAccess: kubeconfigText({
          caPem: server.caPem,
          server: inside(server),
          token: present(tokens[index], 'a token'),
        }),
        proxyAccess: kubeconfigText({
          caPem: server.caPem,
          server: inside(server),
          token: server.adminToken,
        }),
      }),
    ),
  );
  const access = join(folder, 'kubeconfig');
  await writeFile(
    access,
    kubeconfigText({ caPem: server.caPem, server: server.url, token: server.adminToken }),
  );
  const kubectl = async (...words: readonly string[]): Promise<string> => {
    const options = { maxBuffer: MAX_OUTPUT_BYTES };
    // The folder of kubectl's own cache is the home folder otherwise.
    const own = [`--kubeconfig=${access}`, `--cache-dir=${join(folder, 'kubectl')}`];
    return (await run(programs.kubectl, [...own, ...words], options)).stdout;
  };
  const objects = new Cluster(server, t);
  await objects.applyText(await readFile(DNS, 'utf8'));
  const cluster = {
    folder,
    network,
    server,
    nodes,
    objects,
    kubeconfig: access,
    kubectl,
    kubectlPath: programs.kubectl,
  };
  await until(
    async () => {
      for (const node of nodes) await node.check();
      return isComplete(cluster);
    },
    { what: 'two ready nodes with DNS', timeoutMs: READY_TIMEOUT_MS },
  );
  return cluster;
}

async function startServer(
  t: TeardownOwner,
  programs: ClusterPrograms,
  { hub, nodes }: ClusterNetwork,
  tokens: readonly string[],
): Promise<ApiServer> {
  const end = new AbortController();
  t.teardown(async () => {
    end.abort();
    await until(async () => (await run('ip', ['netns', 'pids', hub.name])).stdout === '', {
      what: 'the control plane is gone',
    });
  });
  const server = await startApiServer(programs, {
    netns: hub.path,
    address: SERVER_ADDRESS,
    // The certificate names localhost, and the address of no loopback.
    reach: async (port) => `https://localhost:${await relayInto(t, hub.path, port)}`,
    accounts: nodes.map(
      ({ name }, index) =>
        `${present(tokens[index], 'a token')},system:node:${name},${name},system:nodes`,
    ),
    signal: end.signal,
  });
  t.teardown(() => rm(server.directory, { recursive: true, force: true, maxRetries: 10 }));
  return server;
}

/** Starts the controller manager and the scheduler. */
async function startControllers(
  t: TeardownOwner,
  programs: ClusterPrograms,
  {
    network,
    server,
    folder,
  }: { readonly network: ClusterNetwork; readonly server: ApiServer; readonly folder: string },
): Promise<void> {
  const access = join(folder, 'controllers.kubeconfig');
  const roots = join(folder, 'roots.pem');
  await mkdir(folder, { recursive: true });
  await writeFile(
    access,
    kubeconfigText({ caPem: server.caPem, server: inside(server), token: server.adminToken }),
  );
  await writeFile(roots, server.caPem);
  const shared = [`--kubeconfig=${access}`, '--leader-elect=false', '--bind-address=127.0.0.1'];
  const commands = {
    'kube-controller-manager': [
      programs.controllerManager,
      ...shared,
      `--service-account-private-key-file=${join(server.directory, 'sa.key')}`,
      `--root-ca-file=${roots}`,
      '--use-service-account-credentials',
      '--allocate-node-cidrs=false',
    ],
    'kube-scheduler': [programs.scheduler, ...shared],
  };
  for (const [name, words] of Object.entries(commands)) {
    const program = await Program.start({ name, words, folder, netns: network.hub.path });
    t.teardown(() => program.kill());
  }
}

/** The address of the server for what runs in the cluster; the nodes' way to it is not through this process. */
function inside({ port }: ApiServer): string {
  return `https://${SERVER_ADDRESS}:${port}`;
}

interface Conditioned {
  readonly items: readonly {
    readonly status: { readonly conditions?: readonly { type: string; status: string }[] };
  }[];
}

async function isComplete({ objects, nodes }: TestCluster): Promise<boolean> {
  const ready = async (path: string): Promise<boolean> => {
    const { items } = (await objects.admin.get(path)) as Conditioned;
    const passing = items.filter(({ status }) =>
      status.conditions?.some(({ type, status: value }) => type === 'Ready' && value === 'True'),
    );
    return passing.length === nodes.length;
  };
  return (await ready('/api/v1/nodes')) && (await ready('/api/v1/namespaces/kube-system/pods'));
}
