/** Weft's node proxy under an unmodified istio-cni, whose plugin the runtime calls and whose agent hands it the pods. */
import { execFile } from 'node:child_process';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import test, { registerCompletionHandler } from 'ava';
import type { ExecutionContext } from 'ava';
import { processEnvironment } from '../../lib/config/env.ts';
import { cniPrograms, pluginFolder } from '../cni/support/programs.ts';
import type { CniPrograms } from '../cni/support/programs.ts';
import { startApiServer } from '../kubernetes/support/api-server.ts';
import { Cluster } from '../kubernetes/support/cluster.ts';
import { kubernetesPrograms } from '../kubernetes/support/programs.ts';
import type { KubernetesPrograms } from '../kubernetes/support/programs.ts';
import { makeScratch } from '../support/leftovers.ts';
import { createNetns } from '../support/netns-kit.ts';
import type { TestNetns } from '../support/netns-kit.ts';
import { netnsTest } from '../support/netns-test.ts';
import { ProxyMesh } from '../support/proxy-kit.ts';
import type { ProxyProcess } from '../support/proxy-process.ts';
import { until } from '../support/until.ts';
import { workload } from '../support/workloads.ts';
import { istioCniPrograms, startIstioCni } from './support/istio-cni.ts';
import type { IstioCniPrograms } from './support/istio-cni.ts';

const run = promisify(execFile);
const NODE = 'node-1';
const NETWORK = 'pods';
const PORT = 8080;
const SERVER = `require('node:http').createServer((_, answer) => answer.end('plain words')).listen(${PORT})`;

interface Programs {
  readonly istio: IstioCniPrograms;
  readonly cni: CniPrograms;
  readonly kubernetes: KubernetesPrograms;
}

async function findPrograms(): Promise<Programs | { readonly missing: string }> {
  const cni = await cniPrograms();
  if ('missing' in cni) return cni;
  const kubernetes = await kubernetesPrograms();
  if ('missing' in kubernetes) return kubernetes;
  const istio = await istioCniPrograms();
  return 'missing' in istio ? istio : { istio, cni, kubernetes };
}

/** A node with istio-cni, and the means of its kubelet and runtime. */
interface Node {
  /** Starts a proxy of Weft's as the node's newest, or as one of those that share a session with istio-cni. */
  proxy(group: number, how?: 'alone' | 'shares'): Promise<ProxyProcess>;
  /** Creates a pod and starts it. */
  start(namespace: string, name: string): Promise<TestNetns>;
  /** Tells the mesh of a pod of the namespace `demo`; returns its address. */
  describe(name: string, netns: TestNetns): Promise<string>;
}

async function istioNode(
  t: ExecutionContext,
  cluster: Cluster,
  { istio, cni }: Programs,
): Promise<Node> {
  const dir = await makeScratch('istio-cni');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const [netDir, zds] = [join(dir, 'net.d'), join(dir, 'zds', 'z.sock')];
  for (const folder of ['net.d', 'zds']) await mkdir(join(dir, folder));
  await writeFile(join(netDir, '10-pods.conflist'), JSON.stringify(primary(join(dir, 'ipam'))));
  const bin = await pluginFolder(t, cni);
  const names = ['client', 'server', 'late', 'both', 'last', 'next'];
  const mesh = await ProxyMesh.start(t, Object.fromEntries(names.map((name) => [name, NODE])));
  const { netns } = mesh.nodes[NODE];
  const place = { name: NODE, netns, dir, bin, zds };
  const words = await startIstioCni(t, place, { programs: istio, server: cluster.server });
  await until(() => words().includes('initial installation complete'), { what: 'istio-cni' });
  const cnitool = (command: string, pod: TestNetns, args: string): Promise<unknown> =>
    run('ip', ['netns', 'exec', netns.name, cni.cnitool, command, NETWORK, pod.path], {
      env: {
        PATH: processEnvironment()['PATH'],
        CNI_PATH: bin,
        NETCONFPATH: netDir,
        CNI_ARGS: `IgnoreUnknown=1;${args}`,
      },
    });
  return {
    proxy: async (group, how = 'alone') => {
      const siblings = { WEFT_NODE_PROXY_SIBLINGS: join(dir, 'zds', 'siblings.sock') };
      const shared = how === 'alone' ? {} : siblings;
      const proxy = mesh.nodes[NODE].another(group, { INPOD_UDS: zds, ...shared });
      await proxy.ready();
      return proxy;
    },
    start: async (namespace, name) => {
      await cluster.admin.create(`/api/v1/namespaces/${namespace}/pods`, podOf(namespace, name));
      const pod = await createNetns(t, name);
      const args = `K8S_POD_NAMESPACE=${namespace};K8S_POD_NAME=${name}`;
      const added = async (): Promise<boolean> => {
        try {
          await cnitool('add', pod, args);
          return true;
        } catch (error) {
          // A runtime takes a failed sandbox down before it tries again.
          await cnitool('del', pod, args);
          throw error;
        }
      };
      await until(added, { what: `${namespace}/${name} starts` });
      return pod;
    },
    describe: async (name, pod) => {
      const shown = await pod.exec('ip', '-4', 'addr', 'show', 'eth0');
      const ip = /inet ([\d.]+)\//.exec(shown)?.[1] ?? '';
      const uid = `Kubernetes//Pod/demo/${name}`;
      const facts = { uid, name, serviceAccount: name, node: NODE, clusterId: 'Kubernetes' };
      await mesh.describe(workload({ ...facts, addresses: [ip] }));
      return ip;
    },
  };
}

function primary(dataDir: string): unknown {
  const ipam = { type: 'host-local', subnet: '10.77.0.0/16', dataDir };
  const bridge = { type: 'bridge', bridge: 'cni0', isGateway: true, ipam };
  return { cniVersion: '1.0.0', name: NETWORK, plugins: [bridge] };
}

function podOf(namespace: string, name: string): unknown {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace },
    spec: {
      nodeName: NODE,
      serviceAccountName: name,
      containers: [{ name: 'main', image: 'main' }],
    },
  };
}

function serves(proxy: ProxyProcess, pod: string): boolean {
  return proxy.logged('pod.listening').some((line) => line['name'] === pod);
}

const found = await findPrograms();
if ('missing' in found) {
  process.stderr.write(`\nSKIPPED interop: istio-cni: ${found.missing}\n`);
  test.skip(`istio-cni: ${found.missing}`, (t) => t.pass());
} else {
  // The API server ends with this process, which would wait for it.
  registerCompletionHandler(() => process.exit());
  netnsTest(
    "Weft's proxy carries the pods of an unmodified istio-cni, the next one too, and several by one session",
    async (t) => {
      t.timeout(480_000);
      const cluster = new Cluster(await startApiServer(found.kubernetes), t);
      const node = await istioNode(t, cluster, found);
      for (const [name, labels] of [
        ['demo', { 'istio.io/dataplane-mode': 'ambient' }],
        ['plain', {}],
      ] as const) {
        const namespace = { apiVersion: 'v1', kind: 'Namespace', metadata: { name, labels } };
        await cluster.admin.create('/api/v1/namespaces', namespace);
      }
      const first = await node.proxy(1);
      const apart = await node.start('plain', 'apart');
      t.notRegex(await apart.exec('iptables-nft-save'), /ISTIO_/);
      const client = await node.start('demo', 'client');
      const server = await node.start('demo', 'server');
      t.regex(await client.exec('iptables-nft-save'), /--to-ports 15001/);
      await node.describe('client', client);
      const ip = await node.describe('server', server);
      server.spawn(process.execPath, ['-e', SERVER], { stdio: 'ignore' });
      const ask = (from: TestNetns): Promise<string> =>
        from.exec('curl', '-sS', '-m', '60', `http://${ip}:${PORT}/`);
      await until(() => ask(client), { what: 'an answer' });
      t.is(await ask(client), 'plain words');

      // istio-cni gives new pods to the newest connection alone.
      const second = await node.proxy(2, 'shares');
      first.kill('SIGTERM');
      const late = await node.start('demo', 'late');
      await node.describe('late', late);
      await until(() => ask(late), { what: 'an answer to the late pod' });
      t.is(await ask(client), 'plain words');
      for (const [proxy, name] of [
        [first, 'client'],
        [second, 'late'],
      ] as const) {
        const identity = `spiffe://cluster.local/ns/demo/sa/${name}`;
        const told = (): unknown => proxy.lines.find((line) => line['src.identity'] === identity);
        await until(told, { what: `the access line of ${name}` });
      }

      const third = await node.proxy(2, 'shares');
      await node.start('demo', 'both');
      t.true(
        [second, third].every((proxy) => serves(proxy, 'both')),
        'two share one session',
      );
      second.kill('SIGKILL');
      await second.ended;
      const last = await node.start('demo', 'last');
      await node.describe('last', last);
      await until(() => ask(last), { what: 'an answer to the last pod' });
      t.is(await ask(client), 'plain words');
      t.is(third.logged('zds.holder-elected').length, 1);
      const placed = third.logged('pod.listening').map((line) => String(line['name']));
      // Each once: none was placed again.
      t.is(placed.toSorted().join(), 'both,client,last,late,server');

      const fourth = await node.proxy(3, 'shares');
      third.kill('SIGTERM');
      const next = await node.start('demo', 'next');
      await node.describe('next', next);
      await until(() => ask(next), { what: 'an answer to the pod after the drain began' });
      t.is(await ask(client), 'plain words');
      t.is(fourth.logged('zds.holder-elected').length, 1);
    },
  );
}
