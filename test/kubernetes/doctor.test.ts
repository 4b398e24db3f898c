/** The causes that `weft doctor` names on Kubernetes, each brought about. */
import { execFile } from 'node:child_process';
import { globSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Proof } from '../../services/node-agent/proof/node-proof.ts';
import { bareEnvironment } from '../support/bare-environment.ts';
import { makeScratch } from '../support/leftovers.ts';
import { spawnAgent } from '../support/node-agent-kit.ts';
import { startServingProxy } from '../support/serving-proxy.ts';
import { until } from '../support/until.ts';
import { ADDRESS, agentNode, agentOf, sandbox } from './support/node-agent.ts';
import type { AgentNode } from './support/node-agent.ts';
import { pod } from './support/objects.ts';
import { usedRights } from './support/rbac.ts';
import { kubernetesSuite } from './support/suite.ts';

const run = promisify(execFile);
const WEFT = new URL('../../services/cli/weft', import.meta.url).pathname;
/** The library of Debian's package faketime. */
const [FAKETIME] = globSync('/usr/lib/*/faketime/libfaketimeMT.so.1');
const MODE = { 'istio.io/dataplane-mode': 'ambient' };
/** A pod's start is told in whole seconds. */
const LATER_MS = 2_000;

/** The findings about the node itself and about one pod, as `cause: detail`. */
function causes({ findings }: Proof, of: string | null): readonly string[] {
  return findings
    .filter(({ pod: found }) => found === of)
    .map(({ cause, detail }) => `${cause}: ${detail}`);
}

async function proofOf(agent: {
  ask(method: string, path: string): Promise<unknown>;
}): Promise<Proof> {
  return (await agent.ask('GET', '/proof')) as Proof;
}

/** The findings of `weft doctor`, asked of an agent whose clock is off. */
async function doctorOf(
  t: Parameters<typeof spawnAgent>[0],
  { site }: AgentNode,
  offset: string,
): Promise<Proof> {
  const dir = await makeScratch('doctor');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const admin = `unix:${join(dir, 'admin.sock')}`;
  const clock = {
    LD_PRELOAD: FAKETIME ?? '',
    FAKETIME: offset,
    FAKETIME_DONT_FAKE_MONOTONIC: '1',
  };
  const environment = { ...site.environment, ...clock, WEFT_ADMIN_ADDRESS: admin };
  spawnAgent(t, { ...site, environment });
  const env = bareEnvironment({ WEFT_ADMIN_ADDRESS: admin });
  const ask = async (): Promise<Proof | undefined> => {
    const { stdout } = await run(WEFT, ['doctor', '-o', 'json'], { env }).catch(
      (error: unknown) => error as { readonly stdout: string },
    );
    return (JSON.parse(stdout) as Proof[])[0];
  };
  return until(
    async () => {
      const proof = await ask();
      const away = new Set(['node agent unreachable', 'API server unreachable']);
      const answered = proof?.findings.every(({ cause }) => !away.has(cause));
      return answered === true ? proof : null;
    },
    { what: 'the agent answers' },
  );
}

await kubernetesSuite('doctor', (test) => {
  test('a pod that its runtime started without the plugin is named', async (t, cluster) => {
    const node = await agentNode(t, cluster, { cni: true });
    const agent = await agentOf(t, node);
    startServingProxy(t, node.site.socket);
    await until(() => agent.context.readiness.pending().length === 0, { what: 'readiness' });
    const namespace = await cluster.namespace('uncalled', MODE);
    const object = pod(namespace, 'web', { ip: ADDRESS, node: node.node });
    const startTime = new Date(Date.now() + LATER_MS).toISOString().replace(/\.\d+Z$/, 'Z');
    const status = { ...(object as { status?: object }).status, startTime };
    const [stored] = await cluster.apply({ ...object, status });
    const uid = stored?.metadata.uid ?? '';
    await sandbox(t, node, uid);
    await until(() => agent.state(uid) === 'enabled', { what: 'enabled' });
    const name = `${namespace}/web`;
    t.regex(causes(await proofOf(agent), name).join(), /^plugin not called: /);
  });

  test('options of Cilium under which a mesh does not work are named', async (t, cluster) => {
    const node = await agentNode(t, cluster);
    const agent = await agentOf(t, node);
    await until(() => agent.context.readiness.pending().length === 0, { what: 'readiness' });
    const conflicts = async (): Promise<readonly string[]> =>
      causes(await proofOf(agent), null).filter((line) => line.startsWith('conflicting'));
    t.deepEqual(await conflicts(), []);
    const path = '/api/v1/namespaces/kube-system/configmaps';
    const cleaner = cluster.client();
    t.teardown(() => cleaner.delete(`${path}/cilium-config`));
    const data = { 'cni-exclusive': 'true', 'bpf-lb-sock': 'true' };
    await cluster.admin.create(path, {
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name: 'cilium-config' },
      data,
    });
    const found = await conflicts();
    t.is(found.length, 2);
    t.regex(found.join(), /cni\.exclusive=false.*socketLB\.hostNamespaceOnly=true/);
    const { refused } = await usedRights(cluster, node.account);
    t.deepEqual(refused, []);
  });

  test('an API server that is away is named', async (t, cluster) => {
    const gateway = await cluster.gateway();
    const node = await agentNode(t, cluster, { via: gateway });
    const agent = await agentOf(t, node);
    await until(() => agent.context.readiness.pending().length === 0, { what: 'readiness' });
    gateway.close();
    await until(
      async () =>
        causes(await proofOf(agent), null).some((line) =>
          line.startsWith('API server unreachable'),
        ),
      { what: 'the finding' },
    );
    gateway.restore();
    t.pass();
  });

  test('a clock that is off is named, and by how much', async (t, cluster) => {
    if (FAKETIME === undefined) {
      process.stderr.write('\nSKIPPED clock skew: Debian package faketime is not installed\n');
      t.pass();
      return;
    }
    const ahead = causes(await doctorOf(t, await agentNode(t, cluster), '+120s'), null);
    t.regex(ahead.join(), /clock skew: this node's clock is 1[12]\d s ahead/);
  });
});
