/** Runs Weft under an unmodified istiod and istio-cni, and moves nodes from an unmodified ztunnel to Weft's proxy and back. */
import { rm } from 'node:fs/promises';
import test from 'ava';
import { present } from '../../lib/errors/assert.ts';
import { makeScratch } from '../support/leftovers.ts';
import { captureLink, enrolRunning, resources } from './mesh.ts';
import { addWeft, carries, moveUnderLoad, toWeft, toZtunnel } from './migration.ts';
import { app } from './support/app.ts';
import type { TestCluster } from './support/cluster.ts';
import { istioArchive } from './support/istio-images.ts';
import { istioPrograms } from './support/istio-programs.ts';
import { installIstio, installZtunnel, prepareZtunnel } from './support/istio.ts';
import { Owner } from './support/owner.ts';
import { rolledOut } from './support/pods.ts';
import { prepareCluster } from './support/prepare.ts';
import { installWeft, uninstallWeft } from './support/weft.ts';

/** A ztunnel that leaves carries its connections for longer than the nodes take to move. */
const ZTUNNEL_DRAIN_SECONDS = 600;
const REPLACE = ['replaceZtunnel.enabled=true', 'nodeSelector.weft=proxy'];
const owner = new Owner();
let running: TestCluster | null = null;
const cluster = (): TestCluster => present(running, 'the cluster runs');

interface Prepared {
  readonly helm: string;
  readonly charts: string;
  readonly ztunnel: string | null;
  readonly start: () => Promise<TestCluster>;
}

async function prepared(): Promise<{ readonly missing: string } | Prepared> {
  const base = await prepareCluster();
  if ('missing' in base) return base;
  const istio = await istioPrograms();
  if ('missing' in istio) return istio;
  const { helm, archive, start } = base;
  const { charts, ztunnel } = istio;
  return {
    helm,
    charts,
    ztunnel,
    start: async () => {
      const folder = await makeScratch('istio');
      owner.teardown(() => rm(folder, { recursive: true, force: true }));
      return start(owner, await istioArchive(folder, archive, istio));
    },
  };
}

const found = await prepared();
if ('missing' in found) {
  process.stderr.write(`\nSKIPPED cluster: migration: ${found.missing}\n`);
  test.skip(`migration: ${found.missing}`, (t) => t.pass());
} else declare(found);

function declare({ helm, charts, ztunnel, start }: Prepared): void {
  const withZtunnel = ztunnel === null ? test.serial.skip : test.serial;
  const without = ztunnel === null ? test.serial : test.serial.skip;
  if (ztunnel === null) {
    process.stderr.write('\nSKIPPED cluster: migration: WEFT_ZTUNNEL names no ztunnel\n');
  }

  test.before(async (t) => {
    t.timeout(600_000);
    running = await start();
  });
  test.after.always(async (t) => {
    t.timeout(120_000);
    await owner.end();
  });

  test.serial("Istio's charts install", async (t) => {
    t.timeout(600_000);
    await installIstio(cluster(), helm, charts);
    if (ztunnel === null) {
      // Weft runs under it; ztunnel's chart brings it otherwise.
      await cluster().kubectl('-n', 'istio-system', 'create', 'serviceaccount', 'ztunnel');
    }
    for (const name of ['plain', 'mesh']) {
      await cluster().kubectl('create', 'namespace', name);
      await cluster().objects.apply(...app(name, 'web', 2), ...app(name, 'client', 2));
    }
    for (const name of ['plain', 'mesh']) {
      await rolledOut(cluster(), name, 'deployment/web');
      await rolledOut(cluster(), name, 'deployment/client');
    }
    t.pass();
  });

  withZtunnel('ztunnel carries the pods', async (t) => {
    t.timeout(600_000);
    await installZtunnel(cluster(), helm, charts);
    await enrolRunning(t, cluster(), 'mesh');
    await prepareZtunnel(cluster(), helm, charts, ZTUNNEL_DRAIN_SECONDS);
  });

  test.serial("Weft's chart installs beside it, on no node yet", async (t) => {
    t.timeout(600_000);
    await installWeft(cluster(), helm, REPLACE);
    t.pass();
  });

  withZtunnel('Weft takes node after node over, and no connection fails', async (t) => {
    t.timeout(600_000);
    await moveUnderLoad(t, cluster(), 'mesh', (node) => toWeft(cluster(), node));
  });

  without("Weft's proxy serves the pods that istio-cni enrols", async (t) => {
    t.timeout(600_000);
    for (const { name } of cluster().network.nodes) await addWeft(cluster(), name);
    await enrolRunning(t, cluster(), 'mesh');
  });

  test.serial('Weft carries the pods over HBONE and enforces the policies of istiod', async (t) => {
    t.timeout(600_000);
    await captureLink(t, cluster(), { inside: 'mesh', outside: 'plain' });
    for (const { name } of cluster().network.nodes) await carries(cluster(), name);
    await resources(t, cluster(), { inside: 'mesh', outside: 'plain' });
  });

  test.serial('new pods start in the mesh', async (t) => {
    t.timeout(600_000);
    await cluster().kubectl('-n', 'mesh', 'delete', 'pods', '--all');
    for (const name of ['web', 'client']) {
      await rolledOut(cluster(), 'mesh', `deployment/${name}`);
    }
    await captureLink(t, cluster(), { inside: 'mesh', outside: 'plain' });
  });

  withZtunnel('ztunnel takes node after node back, and no connection fails', async (t) => {
    t.timeout(600_000);
    await moveUnderLoad(t, cluster(), 'mesh', (node) => toZtunnel(cluster(), node));
    await captureLink(t, cluster(), { inside: 'mesh', outside: 'plain' });
  });

  test.serial("Weft's chart is removed", async (t) => {
    t.timeout(600_000);
    await uninstallWeft(cluster(), helm);
    t.pass();
  });
}
