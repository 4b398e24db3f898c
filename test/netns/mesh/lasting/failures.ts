import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { present } from '../../../../lib/errors/assert.ts';
import { Load } from '../../../support/load.ts';
import type { TestMesh } from '../../../support/mesh.ts';
import {
  denyClient,
  killAll,
  recovered,
  undisturbed,
  withoutRestarts,
  worksAgain,
} from '../../../support/mesh-faults.ts';
import { until } from '../../../support/until.ts';
import { test } from './mesh.ts';

/** Starts load over HBONE to the other node and to the own one, and out of the mesh. */
async function startLoad(mesh: TestMesh): Promise<Load> {
  const outsider = await mesh.pod('plain', 'outsider');
  return Load.start(mesh, 'demo/client', 'api:80', 'web:80', `${outsider.ip}:8080`);
}

for (const [name, node, work] of [
  ['control-plane', null, 'policies'],
  ['ca', null, 'pods'],
  ['xds-ingester', null, 'policies'],
  ['policy-evaluator', null, 'policies'],
  ['cert-fetcher', 'node-2', 'pods'],
  ['node-agent', 'node-2', 'pods'],
] as const) {
  test(`killing ${name} under load fails no connection, and what it does works again`, async (t, mesh) => {
    const load = await startLoad(mesh);
    const { pid } = await mesh.actor(name, node);
    await withoutRestarts(mesh, async () => {
      await killAll([pid]);
      await load.goesOn(`without ${name}`);
    });
    await recovered(mesh, [pid]);
    await worksAgain(t, mesh, work);
    await load.goesOn(`with ${name} back`);
    await undisturbed(t, mesh, load);
  });
}

for (const [title, wipe] of [
  ['killing Redis', false],
  ['killing Redis and losing its data', true],
] as const) {
  test(`${title} under load fails no connection, and the mesh converges`, async (t, mesh) => {
    const load = await startLoad(mesh);
    const pid = present((await mesh.status()).redis.pid, 'Redis runs');
    await withoutRestarts(mesh, async () => {
      await killAll([pid]);
      if (wipe) await emptyFolder(join(mesh.directory, 'redis', 'data'));
      await load.goesOn('without Redis');
    });
    await recovered(mesh, [pid]);
    await worksAgain(t, mesh, 'pods', 'policies');
    await load.goesOn('with Redis back');
    await undisturbed(t, mesh, load);
  });
}

async function emptyFolder(folder: string): Promise<void> {
  for (const name of await readdir(folder)) await rm(join(folder, name), { recursive: true });
}

test('upgrading the proxies, and ending one by a signal, fails no connection', async (t, mesh) => {
  const load = await startLoad(mesh);
  const upgrade = await mesh.weft('upgrade', 'node-proxy');
  t.is(upgrade.code, 0, upgrade.stderr);
  t.is(upgrade.stdout.match(/generation 2 serves/g)?.length, 2, upgrade.stdout);
  await load.goesOn('after the upgrade');
  const { pid } = await mesh.actor('node-proxy', 'node-2');
  process.kill(pid, 'SIGTERM');
  await mesh.returned('node-proxy', 'node-2', pid);
  await load.goesOn('by the proxy in its place');
  await undisturbed(t, mesh, load);
});

test('new connections work while everything but the node proxies is dead', async (t, mesh) => {
  const load = await startLoad(mesh);
  const db = await mesh.pod('demo', 'db');
  const api = await mesh.pod('demo', 'api-1');
  const killed = [
    ...(await mesh.actors()).filter((actor) => actor.name !== 'node-proxy').map(({ pid }) => pid),
    present((await mesh.status()).redis.pid, 'Redis runs'),
  ];
  t.is(killed.length, 9);
  await withoutRestarts(mesh, async () => {
    await killAll(killed);
    await load.goesOn('without the others');
    // Pairs without earlier traffic: the proxies must look them up and make new tunnels.
    for (const [from, to] of [
      ['demo-web-1', db.ip],
      ['demo-web-2', api.ip],
      ['demo-api-2', db.ip],
    ] as const) {
      const url = `http://${to}:8080/`;
      const fresh = mesh.inNetns(from, 'curl', '-sS', '--max-time', '60', url);
      t.is((await fresh.exit).code, 0, `${from} → ${to}`);
    }
    await load.goesOn('without the others for longer');
  });
  await recovered(mesh, killed);
  await worksAgain(t, mesh, 'pods', 'policies');
  await load.goesOn('with the others back');
  await undisturbed(t, mesh, load);
});

test('a DENY applied while the evaluator is dead is enforced, on live connections too', async (t, mesh) => {
  const untouched = await Load.start(mesh, 'demo/client', 'api:80');
  const db = await mesh.pod('demo', 'db');
  const denied = await Load.start(mesh, 'demo/client', `${db.ip}:8080`);
  const { pid } = await mesh.actor('policy-evaluator', null);
  await withoutRestarts(mesh, async () => {
    await killAll([pid]);
    t.is((await mesh.apply(denyClient('db'))).code, 0);
    await until(() => denied.failures().some(({ kind }) => kind === 'kept'), {
      what: 'the live connection to be cut',
    });
    await until(() => denied.failures().some(({ kind }) => kind === 'fresh'), {
      what: 'new connections to be refused',
    });
    await until(
      async () =>
        (await mesh.log('node-proxy', 'node-2')).some(
          (line) =>
            line['message'] === 'policy.connection-cut' &&
            line['policy'] === 'demo/no-client-at-db',
        ),
      { what: 'the log to name the policy' },
    );
    t.is((await mesh.delete(denyClient('db'))).code, 0);
    await denied.answers('fresh', 'once the policy is gone');
    await untouched.goesOn('without the evaluator');
  });
  await recovered(mesh, [pid]);
  await denied.stop();
  await undisturbed(t, mesh, untouched);
});

test('killing one node proxy does not disturb the other node, and its pods come back', async (t, mesh) => {
  const outsider = await mesh.pod('plain', 'outsider');
  const same = await Load.start(mesh, 'demo/client', 'web:80', `${outsider.ip}:8080`);
  const across = await Load.start(mesh, 'demo/client', 'api:80');
  const { pid } = await mesh.actor('node-proxy', 'node-2');
  await withoutRestarts(mesh, async () => {
    await killAll([pid]);
    await until(() => across.failures().some(({ kind }) => kind === 'kept'), {
      what: 'the connection it carried to end',
    });
    await same.goesOn('without the other proxy');
  });
  await recovered(mesh, [pid]);
  await across.answers('fresh', 'by the killed node again');
  t.is((await mesh.curl('demo/api-1', 'http://web/')).code, 0);
  await worksAgain(t, mesh, 'pods', 'policies');
  await same.goesOn('with the other proxy back');
  await across.stop();
  await undisturbed(t, mesh, same);
});
