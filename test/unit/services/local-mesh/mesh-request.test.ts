import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { meshPaths } from '../../../../services/local-mesh/mesh-paths.ts';
import { planRequest, podCount } from '../../../../services/local-mesh/mesh-request.ts';
import { roleName } from '../../../../services/local-mesh/roles.ts';
import { MAX_NODES, MAX_PODS_PER_NODE } from '../../../../services/local-mesh/topology.ts';
import { UsageError } from '../../../../lib/errors/usage-error.ts';
import { makeScratch } from '../../../support/leftovers.ts';

const paths = meshPaths('weft', {});
const plan = (options: Parameters<typeof planRequest>[0]) => planRequest(options, paths, {});

async function manifests(t: ExecutionContext): Promise<string> {
  const folder = await makeScratch('request');
  t.teardown(() => rm(folder, { recursive: true }));
  await writeFile(join(folder, 'a.yaml'), 'kind: Namespace\n');
  return folder;
}

test('two nodes and the default manifests unless told otherwise', async (t) => {
  const request = await plan({});
  t.is(request.plan.nodes.length, 2);
  t.deepEqual(request.external, []);
  t.true(podCount(request.documents) > 0);
});

test('extra pods are spread over all nodes, behind one service, and enrolled', async (t) => {
  const request = await plan({ nodes: '3', pods: '4', manifests: await manifests(t) });
  t.is(podCount(request.documents), 12);
  const kinds = request.documents.map(({ object }) => object as { kind: string });
  const pods = kinds.filter(({ kind }) => kind === 'Pod') as unknown as readonly {
    metadata: { name: string };
    spec: { nodeName: string };
  }[];
  t.is(new Set(pods.map(({ spec }) => spec.nodeName)).size, 3);
  t.is(new Set(pods.map(({ metadata }) => metadata.name)).size, 12);
  t.is(kinds.filter(({ kind }) => kind === 'Service').length, 1);
});

test('roles are left to others by name', async (t) => {
  const folder = await manifests(t);
  const request = await plan({ external: 'node-1/node-proxy,ca', manifests: folder });
  t.deepEqual(request.external.map(roleName), ['node-1/node-proxy', 'ca']);
  await t.throwsAsync(plan({ external: 'node-9/node-proxy', manifests: folder }), {
    instanceOf: UsageError,
    message: /no role "node-9\/node-proxy"/,
  });
});

for (const nodes of ['0', '-1', '1.5', 'two', '', String(MAX_NODES + 1)]) {
  test(`--nodes ${JSON.stringify(nodes)} is refused`, async (t) => {
    await t.throwsAsync(plan({ nodes }), { instanceOf: UsageError, message: /^--nodes must be/ });
  });
}

for (const pods of ['-1', 'many', String(MAX_PODS_PER_NODE)]) {
  test(`--pods ${JSON.stringify(pods)} is refused`, async (t) => {
    await t.throwsAsync(plan({ pods }), { instanceOf: UsageError, message: /^--pods must be/ });
  });
}

test('meshes have their own run directories', (t) => {
  t.is(meshPaths(undefined, {}).root, '/run/weft');
  t.is(meshPaths('other', {}).root, '/run/weft-other');
  t.is(meshPaths(undefined, { WEFT_MESH: 'third' }).root, '/run/weft-third');
  t.is(meshPaths('other', { WEFT_RUN_DIR: '/tmp/x/' }).root, '/tmp/x');
});

for (const [mesh, directory] of [
  ['a-b', undefined],
  ['Weft', undefined],
  ['', undefined],
  ['1a', undefined],
  ['a'.repeat(16), undefined],
  ['weft', 'relative'],
  ['weft', `/${'x'.repeat(60)}`],
] as const) {
  test(`mesh ${JSON.stringify(mesh)} at ${directory ?? 'its place'} is refused`, (t) => {
    t.throws(() => meshPaths(mesh, { WEFT_RUN_DIR: directory }), { code: 'CONFIG_INVALID' });
  });
}
