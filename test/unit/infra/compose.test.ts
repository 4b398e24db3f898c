/** docker-compose.yml stands beside `weft up`: same actors, addresses, files and variables. */
import { readFile } from 'node:fs/promises';
import test from 'ava';
import { parse } from 'yaml';
import { z } from 'zod';
import { actorEnv } from '../../../services/cli/local/actor-env.ts';
import { meshPaths } from '../../../services/cli/local/mesh-paths.ts';
import { meshRoles } from '../../../services/cli/local/roles.ts';
import { planMesh } from '../../../services/cli/local/topology.ts';

const service = z.object({
  command: z.array(z.string()),
  environment: z.record(z.string(), z.string()).default({}),
  network_mode: z.string().optional(),
  networks: z
    .union([
      z.array(z.string()),
      z.record(z.string(), z.object({ ipv4_address: z.string(), ipv6_address: z.string() })),
    ])
    .optional(),
  depends_on: z.record(z.string(), z.object({ condition: z.string() })).default({}),
  volumes: z.array(z.string()).default([]),
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

function serviceOf(actor: string, index: number | undefined): string {
  return index === undefined ? actor : `${actor}-${index}`;
}

test('every actor has the environment it has in the local mesh', (t) => {
  for (const role of meshRoles(plan)) {
    const found = services[serviceOf(role.actor, role.node?.index)];
    const own =
      role.actor === 'control-plane' ? { WEFT_CONTROL_PLANE_MANIFESTS_DIR: '/manifests' } : {};
    t.deepEqual(found?.environment, { ...actorEnv(role, plan, paths), ...own });
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
      t.is(services[serviceOf(role.actor, node.index)]?.network_mode, `service:${node.name}`);
    }
  }
});

test('every file an actor is told of lies in a volume it has', (t) => {
  for (const [name, { environment, volumes: mounts }] of Object.entries(services)) {
    const targets = mounts.map((mount) => mount.split(':')[1] ?? '');
    for (const value of Object.values(environment)) {
      const path = /^(?:unix:(?:\/\/)?)?(\/run\/\S+)$/.exec(value)?.[1];
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
      t.true(source.startsWith('./') || source in volumes, `${name}: volume ${source}`);
    }
    for (const [need, { condition }] of Object.entries(needs)) {
      t.true(need in services, `${name} needs ${need}`);
      if (condition === 'service_healthy') t.truthy(services[need]?.healthcheck, need);
    }
  }
});
