/** The CNI plugin while no agent answers: its helper judges pods by the API server. */
import { copyFile, mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { systemClock } from '../../lib/clock/clock.ts';
import { DEFAULT_SELECTORS } from '../../services/node-agent/eligibility.ts';
import { installHelper } from '../../services/node-agent/cni/helper-files.ts';
import { kubeconfigText } from '../../services/node-agent/cni/kubeconfig.ts';
import { makeScratch } from '../support/leftovers.ts';
import { PLUGIN_PATH, addEnvironment, runPlugin } from '../cni/support/plugin.ts';
import type { PluginEnd } from '../cni/support/plugin.ts';
import { pod } from './support/objects.ts';
import { kubernetesSuite } from './support/suite.ts';

const AMBIENT = { 'istio.io/dataplane-mode': 'ambient' };

await kubernetesSuite('cni helper', (test) => {
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
    const dir = await makeScratch('helper');
    t.teardown(() => rm(dir, { recursive: true, force: true }));
    const [binDir, runDir] = [join(dir, 'bin'), join(dir, 'run')];
    await mkdir(binDir);
    await mkdir(runDir);
    await copyFile(PLUGIN_PATH, join(binDir, 'weft-cni'));
    await installHelper(binDir);
    const connect = async (url: string): Promise<void> => {
      const text = await kubeconfigText(
        {
          server: new URL(url),
          serverName: null,
          ca: { kind: 'text', text: cluster.server.caPem },
          token: { kind: 'text', text: cluster.server.adminToken },
          client: null,
          namespace: null,
        },
        systemClock,
      );
      await writeFile(join(runDir, 'weft-cni-kubeconfig'), text);
    };
    const add = (name: string, changes: Record<string, unknown> = {}): Promise<PluginEnd> =>
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
      );
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
