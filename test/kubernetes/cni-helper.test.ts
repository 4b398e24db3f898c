/** The CNI plugin while no agent answers: its helper judges pods by the API server. */
import { copyFile, mkdir, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { DEFAULT_SELECTORS } from '../../services/node-agent/eligibility.ts';
import { installHelper } from '../../services/node-agent/cni/helper-files.ts';
import { kubeconfigText } from '../../services/node-agent/cni/kubeconfig.ts';
import { makeScratch } from '../support/leftovers.ts';
import { PLUGIN_PATH, addEnvironment, runPlugin } from '../cni/support/plugin.ts';
import type { PluginEnd } from '../cni/support/plugin.ts';
import { until } from '../support/until.ts';
import type { Cluster } from './support/cluster.ts';
import { pod } from './support/objects.ts';
import { kubernetesSuite } from './support/suite.ts';

const AMBIENT = { 'istio.io/dataplane-mode': 'ambient' };
/** As in cni/plugin/helper.h. */
const MAX_HELPERS = 8;

/** A node with plugin and helper, and no agent. */
interface HelperNode {
  /** Writes the kubeconfig for this API server. */
  connect(url: string): Promise<void>;
  add(name: string, changes?: Record<string, unknown>): Promise<PluginEnd>;
  /** How many helpers run. */
  helpers(): Promise<number>;
}

async function helperNode(
  t: ExecutionContext,
  cluster: Cluster,
  excluded: string,
): Promise<HelperNode> {
  const dir = await makeScratch('helper');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const [binDir, runDir] = [join(dir, 'bin'), join(dir, 'run')];
  await mkdir(binDir);
  await mkdir(runDir);
  await copyFile(PLUGIN_PATH, join(binDir, 'weft-cni'));
  await installHelper(binDir);
  return {
    connect: async (url) => {
      const text = await kubeconfigText(
        {
          server: new URL(url),
          serverName: null,
          ca: { kind: 'text', text: cluster.server.caPem },
        },
        cluster.server.adminToken,
      );
      await writeFile(join(runDir, 'weft-cni-kubeconfig'), text);
    },
    add: (name, changes = {}) =>
      runPlugin(
        addEnvironment(name),
        JSON.stringify({
          cniVersion: '1.0.0',
          name: 'net',
          type: 'weft-cni',
          cni_agent_run_dir: runDir,
          exclude_namespaces: [excluded],
          enablement_selectors: DEFAULT_SELECTORS,
          on_unknown: 'deny',
          ...changes,
        }),
        join(binDir, 'weft-cni'),
      ),
    helpers: async () => {
      const processes = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
      const commands = await Promise.all(
        processes.map((pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')),
      );
      return commands.filter((command) => command.startsWith(binDir) && command.includes('ld.so'))
        .length;
    },
  };
}

await kubernetesSuite('cni helper', (test) => {
  test('many pods that start at once have their helpers in turn', async (t, cluster) => {
    const namespace = await cluster.namespace('cni-many');
    await cluster.apply(pod(namespace, 'plain', { ip: '10.0.0.1' }));
    const { connect, add, helpers } = await helperNode(t, cluster, 'none');
    const gateway = await cluster.gateway();
    await connect(gateway.url);
    gateway.stall();
    let [running, most] = [3 * MAX_HELPERS, 0];
    const starts = Array.from({ length: running }, async () => {
      // Kubelet tries again where the helper's time is over.
      const started = async (): Promise<boolean> => (await add(`${namespace}/plain`)).code === 0;
      await until(started, { what: 'the pod starts' });
      running -= 1;
    });
    await until(
      async () => {
        most = Math.max(most, await helpers());
        if (most >= MAX_HELPERS) gateway.restore();
        return running === 0;
      },
      { what: 'all pods start' },
    );
    await Promise.all(starts);
    t.is(most, MAX_HELPERS);
  });

  test('pods outside the mesh start, pods of the mesh wait, and nobody judges without an API server', async (t, cluster) => {
    const namespace = await cluster.namespace('cni');
    const member = await cluster.namespace('cni-mesh', AMBIENT);
    const excluded = await cluster.namespace('cni-excluded', AMBIENT);
    await cluster.apply(
      pod(namespace, 'plain', { ip: '10.0.0.1' }),
      pod(namespace, 'labelled', { ip: '10.0.0.2', labels: AMBIENT }),
      pod(member, 'member', { ip: '10.0.0.3' }),
      pod(member, 'left', { ip: '10.0.0.4', labels: { 'istio.io/dataplane-mode': 'none' } }),
    );
    const { connect, add } = await helperNode(t, cluster, excluded);
    await connect(cluster.server.url);
    for (const name of [`${namespace}/plain`, `${member}/left`, `${excluded}/any`]) {
      const { code, stdout } = await add(name);
      t.is(code, 0, `${name}: ${stdout}`);
    }
    for (const name of [`${namespace}/labelled`, `${member}/member`]) {
      const { code, answer } = await add(name);
      t.is(code, 1, name);
      t.is(answer?.['code'], 11);
      t.regex(
        String(answer?.['msg']),
        /belongs to the mesh \(selected\) and must wait: the node agent/,
      );
    }
    t.regex(String((await add(`${namespace}/missing`)).answer?.['msg']), /nobody can tell.*404/);
    // No server listens at the port 1.
    await connect('https://127.0.0.1:1');
    t.regex(
      String((await add(`${namespace}/plain`)).answer?.['msg']),
      /nobody can tell whether.*ECONNREFUSED/,
    );
    t.is((await add(`${namespace}/plain`, { on_unknown: 'allow' })).code, 0);
    t.is((await add(`${excluded}/any`)).code, 0);
  });
});
