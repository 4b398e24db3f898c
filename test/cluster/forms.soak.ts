/** Installs the forms of the chart that `npm run test:cluster` has no time for, one after another; `npm run soak:forms`. */
import test from 'ava';
import { present } from '../../lib/errors/assert.ts';
import { externalRedis, withoutHelm } from './forms.ts';
import { app } from './support/app.ts';
import type { TestCluster } from './support/cluster.ts';
import { Owner } from './support/owner.ts';
import { rolledOut } from './support/pods.ts';
import { prepareCluster } from './support/prepare.ts';
import { marks, traces } from './support/snapshot.ts';
import { SYSTEM } from './support/weft.ts';

const FORMS = { 'a Redis of the operator': externalRedis, 'kubectl alone': withoutHelm };
const INSIDE = 'mesh';
const OUTSIDE = 'plain';
const owner = new Owner();
let running: TestCluster | null = null;
const cluster = (): TestCluster => present(running, 'the cluster runs');
let tracesBefore: readonly (readonly string[])[] = [];

const preparation = await prepareCluster();
if ('missing' in preparation) process.stderr.write(`\nSKIPPED forms: ${preparation.missing}\n`);
const helm = 'missing' in preparation ? '' : preparation.helm;
const formTest = 'missing' in preparation ? test.serial.skip : test.serial;

if (!('missing' in preparation)) {
  test.before(async (t) => {
    t.timeout(300_000);
    running = await preparation.start(owner);
    // As for an operator, whose Secrets are there before the release.
    await cluster().kubectl('create', 'namespace', SYSTEM);
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
    t.deepEqual(await marks(cluster(), INSIDE), []);
  });
}
