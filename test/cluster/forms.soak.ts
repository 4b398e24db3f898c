/** Installs the forms of the chart that `npm run test:cluster` has no time for, one after another; `npm run soak:forms`. */
import test from 'ava';
import { present } from '../../lib/errors/assert.ts';
import { helmProgram } from '../kubernetes/support/helm.ts';
import { removeLeftovers } from '../support/leftovers.ts';
import { weftArchive } from '../support/weft-image.ts';
import { externalRedis, withoutHelm } from './forms.ts';
import { app } from './support/app.ts';
import { startCluster } from './support/cluster.ts';
import type { TestCluster } from './support/cluster.ts';
import { Owner } from './support/owner.ts';
import { rolledOut } from './support/pods.ts';
import { clusterPrograms } from './support/programs.ts';
import { traces } from './support/snapshot.ts';
import { clusterUnavailable } from './support/unavailable.ts';

const FORMS = { 'a Redis of the operator': externalRedis, 'kubectl alone': withoutHelm };
const INSIDE = 'mesh';
const OUTSIDE = 'plain';
const owner = new Owner();
let running: TestCluster | null = null;
const cluster = (): TestCluster => present(running, 'the cluster runs');
let tracesBefore: readonly (readonly string[])[] = [];

async function prepared(): Promise<
  | { readonly missing: string }
  | { readonly helm: string; readonly start: () => Promise<TestCluster> }
> {
  const missing = clusterUnavailable();
  if (missing !== null) return { missing };
  removeLeftovers();
  const programs = await clusterPrograms();
  if ('missing' in programs) return programs;
  const built = await helmProgram();
  if ('missing' in built) return built;
  const archive = await weftArchive();
  if ('missing' in archive) return archive;
  return { helm: built.path, start: () => startCluster(owner, programs, archive.path) };
}

const preparation = await prepared();
if ('missing' in preparation) process.stderr.write(`\nSKIPPED forms: ${preparation.missing}\n`);
const helm = 'missing' in preparation ? '' : preparation.helm;
const formTest = 'missing' in preparation ? test.serial.skip : test.serial;

if (!('missing' in preparation)) {
  test.before(async (t) => {
    t.timeout(300_000);
    running = await preparation.start();
    for (const namespace of [INSIDE, OUTSIDE]) {
      await cluster().kubectl('create', 'namespace', namespace);
      await cluster().objects.apply(...app(namespace, 'web', 2), ...app(namespace, 'client', 2));
    }
    for (const namespace of [INSIDE, OUTSIDE]) {
      for (const name of ['web', 'client']) {
        await rolledOut(cluster(), namespace, `deployment/${name}`);
      }
    }
    tracesBefore = await Promise.all(cluster().nodes.map(traces));
  });
  test.after.always(async (t) => {
    t.timeout(120_000);
    await owner.end();
  });
}

for (const [name, form] of Object.entries(FORMS)) {
  formTest(`${name}: pods are enrolled, policies take effect, and nothing is left`, async (t) => {
    t.timeout(600_000);
    await form(t, { cluster: cluster(), helm, inside: INSIDE, outside: OUTSIDE });
    t.deepEqual(await Promise.all(cluster().nodes.map(traces)), tracesBefore);
  });
}
