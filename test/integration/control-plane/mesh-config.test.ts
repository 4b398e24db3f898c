/** The MeshConfig of a running control plane, from a file and from a ConfigMap. */
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { systemClock } from '../../../lib/clock/clock.ts';
import { MeshConfigFollower } from '../../../lib/mesh-config/follower.ts';
import { readMeshConfig } from '../../../services/control-plane/mapping/mesh-config.ts';
import { keptLog } from '../../support/actor-context.ts';
import type { TestActor } from '../../support/actor-context.ts';
import { askRoute } from '../../support/ask-route.ts';
import { createControlPlaneKit } from '../../support/control-plane-kit.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { until } from '../../support/until.ts';

const POD = `
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: default}
spec: {nodeName: node-1, containers: [{name: app}]}
`;

const configMap = (mesh: string): string => `
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data: {mesh: "${mesh}"}
`;

async function trustDomain(actor: TestActor): Promise<string | undefined> {
  const { text } = await askRoute(actor.routes, 'GET /addresses');
  const { workloads } = JSON.parse(text) as { workloads: { content: { trustDomain: string } }[] };
  return workloads[0]?.content.trustDomain;
}

async function becomes(actor: TestActor, wanted: string): Promise<void> {
  await until(async () => (await trustDomain(actor)) === wanted, {
    what: `the trust domain ${wanted}`,
  });
}

test('a ConfigMap is followed; a bad one is named and leaves the last one in force', async (t) => {
  const kit = await createControlPlaneKit(t);
  const actor = await kit.start();
  await kit.api.apply(POD);
  await kit.api.run('default', 'web-1', ['10.201.0.5']);
  await becomes(actor, 'cluster.local');
  await kit.api.apply(configMap('{trustDomain: one.example, enableTracing: true}'));
  await becomes(actor, 'one.example');
  const fields = actor.lines.filter(({ message }) => message === 'mesh-config.fields-ignored');
  t.deepEqual(
    fields.map((line) => line['fields']),
    [['enableTracing']],
  );
  const told = actor.lines.find(({ message }) => message === 'trust-domain.not-signed');
  t.like(told, { named: 'one.example', signed: 'cluster.local' });
  await kit.api.apply(configMap('{trustDomain: 7}'));
  await until(() => actor.lines.some(({ message }) => message === 'mesh-config.refused'), {
    what: 'the refusal',
  });
  const refused = actor.lines.find(({ message }) => message === 'mesh-config.refused');
  t.regex(String(refused?.['error']), /istio-system\/istio, mesh, trustDomain: /);
  t.is(await trustDomain(actor), 'one.example');
  await kit.api.manifests('delete', configMap(''));
  await becomes(actor, 'cluster.local');
});

test('a file comes before the ConfigMap, and is followed', async (t) => {
  const kit = await createControlPlaneKit(t);
  const path = join(kit.ca.dir, 'mesh.yaml');
  await writeFile(path, 'trustDomain: file.example');
  const actor = await kit.start({ WEFT_MESH_CONFIG: path });
  await kit.api.apply(POD + '---' + configMap('{trustDomain: map.example}'));
  await kit.api.run('default', 'web-1', ['10.201.0.5']);
  await becomes(actor, 'file.example');
  await writeFile(path, 'trustDomain: next.example');
  await becomes(actor, 'next.example');
  t.pass();
});

test('a file that is missing or bad at the start is named', async (t) => {
  const { log } = keptLog('test');
  const folder = await makeScratch('mesh-config');
  t.teardown(() => rm(folder, { recursive: true }));
  const path = join(folder, 'mesh.yaml');
  const start = (): Promise<void> =>
    new MeshConfigFollower({
      path,
      read: readMeshConfig,
      clock: systemClock,
      log,
      changed: () => t.fail(),
    }).start();
  await t.throwsAsync(start, { code: 'ENOENT' });
  await writeFile(path, 'rootNamespace: A_B');
  await t.throwsAsync(start, { code: 'CONFIG_INVALID', message: /mesh\.yaml, rootNamespace: / });
});
