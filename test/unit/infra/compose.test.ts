/** Tests that docker-compose.yml and `weft up` have the same actors, addresses, files and variables. */
import { readFile } from 'node:fs/promises';
import test from 'ava';
import { parse, parseAllDocuments } from 'yaml';
import * as z from 'zod';
import {
  containerEnv,
  givenFiles,
  serviceName,
} from '../../../services/container-mesh/own-files.ts';
import { actorDefaults, actorEnv } from '../../../services/local-mesh/actor-env.ts';
import { meshPaths } from '../../../services/local-mesh/mesh-paths.ts';
import { meshRoles } from '../../../services/local-mesh/roles.ts';
import { planMesh } from '../../../services/local-mesh/topology.ts';
import { loadServices } from '../../load/compose-mesh.ts';

const service = z.object({
  command: z.array(z.string()),
  image: z.string(),
  environment: z.record(z.string(), z.string().nullable()).default({}),
  network_mode: z.string().optional(),
  networks: z
    .union([
      z.array(z.string()),
      z.record(z.string(), z.object({ ipv4_address: z.string(), ipv6_address: z.string() })),
    ])
    .optional(),
  depends_on: z.record(z.string(), z.object({ condition: z.string() })).default({}),
  volumes: z.array(z.string()).default([]),
  tmpfs: z.array(z.string()).default([]),
  labels: z.record(z.string(), z.string()).default({}),
  user: z.string().optional(),
  cap_add: z.array(z.string()).default([]),
  cap_drop: z.array(z.string()).default([]),
  read_only: z.boolean().default(false),
  healthcheck: z.object({ test: z.array(z.string()) }).optional(),
});
const document = z.object({
  services: z.record(z.string(), service),
  volumes: z.record(z.string(), z.null()),
});

const plan = planMesh('weft', 2);
const paths = meshPaths('weft', {});
const file = new URL('../../../docker-compose.yml', import.meta.url);
const { services, volumes } = document.parse(
  parse(await readFile(file, 'utf8'), { merge: true, maxAliasCount: 100 }),
);

/** Settings that differ in containers. */
const OWN_SETTINGS: Readonly<Record<string, Readonly<Record<string, string | null>>>> = {
  'control-plane': {
    WEFT_CONTROL_PLANE_MANIFESTS_DIR: '/manifests',
    // The folder holds the key of its certificate, which readers of its socket must not see.
    WEFT_STATE_DIR: '/run/weft/state',
  },
  'node-agent': { WEFT_NODE_AGENT_PROC_DIR: '/run/weft/proc' },
  // The caller's value, or none.
  'node-proxy': { CONNECTION_TERMINATION_DEADLINE: null },
};

test('every actor has the environment it has in the local mesh', (t) => {
  for (const role of meshRoles(plan)) {
    const found = services[serviceName(role)];
    t.deepEqual(found?.environment, {
      ...actorDefaults(role),
      ...containerEnv(actorEnv(role, plan, paths)),
      ...OWN_SETTINGS[role.actor],
    });
    t.deepEqual(found?.command, ['run', role.actor]);
  }
});

test('control plane, CA and nodes have the addresses of the local mesh', (t) => {
  const link = (name: string): unknown => {
    const { networks } = services[name] ?? {};
    return networks === undefined || Array.isArray(networks) ? null : networks['link'];
  };
  const pair = ({ ipv4, ipv6 }: { ipv4: string; ipv6: string }): unknown => ({
    ipv4_address: ipv4,
    ipv6_address: ipv6,
  });
  t.deepEqual(link('control-plane'), pair(plan.control.controlPlane));
  t.deepEqual(link('ca'), pair(plan.control.ca));
  for (const node of plan.nodes) {
    t.deepEqual(link(node.name), pair(node.link));
    for (const role of meshRoles(plan).filter((other) => other.node === node)) {
      t.is(services[serviceName(role)]?.network_mode, `service:${node.name}`);
    }
  }
});

test('every file an actor is told of lies in a volume it has', (t) => {
  for (const [name, { environment, volumes: mounts, tmpfs }] of Object.entries(services)) {
    const targets = [
      ...mounts.map((mount) => mount.split(':')[1] ?? ''),
      ...tmpfs.map((mount) => mount.split(':')[0] ?? ''),
    ];
    for (const value of Object.values(environment)) {
      const path = /^(?:unix:(?:\/\/)?)?(\/run\/\S+)$/.exec(value ?? '')?.[1];
      if (path === undefined) continue;
      t.true(
        targets.some((target) => path === target || path.startsWith(`${target}/`)),
        `${name} sees ${path}`,
      );
    }
  }
});

test('volumes and dependencies that are named exist, and what is waited for can be healthy', (t) => {
  for (const [name, { volumes: mounts, depends_on: needs }] of Object.entries(services)) {
    for (const source of mounts.map((mount) => mount.split(':')[0] ?? '')) {
      t.true(/^[./$]/.test(source) || source in volumes, `${name}: volume ${source}`);
    }
    for (const [need, { condition }] of Object.entries(needs)) {
      t.true(need in services, `${name} needs ${need}`);
      if (condition === 'service_healthy') t.truthy(services[need]?.healthcheck, need);
    }
  }
});

test('only what enters pods has capabilities, and only what must is root; nothing writes to its image', (t) => {
  for (const [
    name,
    { user, cap_add: added, cap_drop: dropped, read_only: fixed },
  ] of Object.entries(services)) {
    t.deepEqual(dropped, ['ALL'], name);
    t.true(fixed, name);
    if (/^node-\d-(?:agent|proxy)$/.test(name)) t.is(user, '0:1337', name);
    else if (name !== 'supervisor') {
      t.is(user, undefined, name);
      t.deepEqual(added, [], name);
    }
  }
});

test('the pods are those of infra/local, on the same nodes', async (t) => {
  const text = await Promise.all(
    ['demo.yaml', 'plain.yaml'].map((name) =>
      readFile(new URL(`../../../infra/local/${name}`, import.meta.url), 'utf8'),
    ),
  );
  const manifests = text
    .flatMap((one) => parseAllDocuments(one))
    .map((one) => one.toJS() as { kind: string; metadata: Metadata; spec: { nodeName: string } })
    .filter(({ kind }) => kind === 'Pod')
    .map(({ metadata, spec }) => `${metadata.namespace}/${metadata.name} on ${spec.nodeName}`);
  const labelled = Object.values(services)
    .filter(({ labels }) => 'weft.io/pod' in labels)
    .map(({ labels }) => `${labels['weft.io/pod']} on ${labels['weft.io/node']}`);
  t.deepEqual(labelled.toSorted(), manifests.toSorted());
});

test('each role has the volume of its own secrets, and nobody has those of another', (t) => {
  const given = new Map<string, string>();
  for (const mount of services['prepare']?.volumes ?? []) {
    const [source = '', target = ''] = mount.split(':');
    const taker = /^\/run\/weft\/given\/(.+)$/.exec(target)?.[1];
    if (taker !== undefined) given.set(taker, source);
  }
  t.deepEqual(
    [...given.keys()].toSorted(),
    [...new Set(givenFiles(plan, paths).map(({ taker }) => taker))].toSorted(),
  );
  t.is(new Set(given.values()).size, given.size);
  for (const [name, { volumes: mounts }] of Object.entries(services)) {
    if (name === 'prepare') continue;
    const sources = mounts.map((mount) => mount.split(':')[0] ?? '');
    t.deepEqual(
      sources.filter((source) => source.startsWith('own-') && source !== `own-${name}`),
      [],
      name,
    );
    for (const source of ['secrets', 'tokens']) t.false(sources.includes(source), name);
    t.is(sources.includes('redis-data'), name === 'redis', name);
    t.is(sources.includes('state'), name === 'control-plane', name);
    t.is(sources.includes('ca'), name === 'ca', name);
  }
});

test('the image starts Node as the launcher does', async (t) => {
  const text = (path: string): Promise<string> =>
    readFile(new URL(`../../../${path}`, import.meta.url), 'utf8');
  const flags = /^exec "\$node" (.+) "\$built\/services\/cli\/main\.js"/m.exec(
    await text('services/cli/weft'),
  )?.[1];
  const entry = /^ENTRYPOINT (.+)$/m.exec(await text('infra/docker/Dockerfile'))?.[1] ?? '[]';
  t.deepEqual(z.array(z.string()).parse(JSON.parse(entry)).slice(1, -1), flags?.split(' '));
});

test('no health check and no command needs a shell', (t) => {
  for (const [name, { healthcheck, command }] of Object.entries(services)) {
    t.not(healthcheck?.test[0], 'CMD-SHELL', name);
    t.false(command.includes('sh'), name);
  }
});

test('the load has its pods on both nodes, without rights, beside proxies with its number of threads', (t) => {
  const found = loadServices({ nodes: 2, pods: 2, proxies: 1, threads: 4 }) as Record<
    string,
    { labels?: Record<string, string>; cap_drop?: string[]; environment?: unknown }
  >;
  t.deepEqual(Object.keys(found).toSorted(), [
    'load-1-1',
    'load-1-2',
    'load-2-1',
    'load-2-2',
    'node-1-proxy',
    'node-2-proxy',
  ]);
  t.deepEqual(found['node-2-proxy']?.environment, { ZTUNNEL_WORKER_THREADS: '4' });
  t.like(found['load-2-1'], { cap_drop: ['ALL'] });
  t.like(found['load-2-1']?.labels, {
    'weft.io/pod': 'load/load-2-1',
    'weft.io/node': 'node-2',
    'istio.io/dataplane-mode': 'ambient',
  });
});

interface Metadata {
  readonly name: string;
  readonly namespace: string;
}
