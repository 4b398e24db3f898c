/** The hook of the chart that ends the node agents before an uninstallation takes their rights. */
import { execFile } from 'node:child_process';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import ava from 'ava';
import type { ExecutionContext } from 'ava';
import { present } from '../../lib/errors/assert.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { makeScratch } from '../support/leftovers.ts';
import { until } from '../support/until.ts';
import type { Cluster, StoredTestObject, TestObject } from './support/cluster.ts';
import { helmProgram, objectsOf, renderChart } from './support/helm.ts';
import { underRole, usedRights } from './support/rbac.ts';
import { kubernetesSuite } from './support/suite.ts';

const ACCOUNT = 'weft-uninstall';
const AGENTS = 'weft-node-agent';
const run = promisify(execFile);

interface Job extends TestObject {
  readonly spec: {
    readonly template: { readonly spec: { readonly containers: readonly JobContainer[] } };
  };
}
interface JobContainer {
  readonly command: readonly string[];
  readonly args: readonly string[];
}

const isHook = ({ metadata }: TestObject): boolean =>
  metadata.annotations?.['helm.sh/hook'] === 'pre-delete';

/** Runs the program of the Job with the token of an account, as kubelet would. */
async function runJob(
  t: ExecutionContext,
  cluster: Cluster,
  job: Job,
  { namespace, token }: { readonly namespace: string; readonly token: string },
): Promise<void> {
  const folder = await makeScratch('uninstall');
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const files = { namespace, token, 'ca.crt': cluster.server.caPem };
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
  const { command, args } = present(job.spec.template.spec.containers[0], 'a container');
  t.is(args.length, 2);
  const [program = '', ...words] = command;
  await run(program, [...words, folder, cluster.server.url]);
}

const helm = await helmProgram();
if ('missing' in helm) {
  process.stderr.write(`\nSKIPPED uninstall: ${helm.missing}\n`);
  ava.skip(`uninstall: ${helm.missing}`, (t) => t.pass());
} else {
  const render = async (namespace: string, values = {}): Promise<readonly TestObject[]> =>
    objectsOf(await renderChart(helm.path, namespace, values));

  await kubernetesSuite('uninstall', (test) => {
    test('the hook waits for the end of the agents, and uses every right it has', async (t, cluster) => {
      const namespace = await cluster.namespace('uninstall');
      const objects = await render(namespace);
      const hooks = objects.filter(isHook);
      const kinds = hooks.map(({ kind }) => kind).toSorted();
      t.deepEqual(kinds, ['Job', 'Role', 'RoleBinding', 'ServiceAccount']);
      const account = await underRole(cluster, ACCOUNT, { namespace, objects: hooks });
      const agents = present(
        objects.find(({ kind, metadata }) => kind === 'DaemonSet' && metadata.name === AGENTS),
        'the chart has agents',
      );
      await cluster.apply(agents);
      const job = present(
        hooks.find(({ kind }) => kind === 'Job'),
        'the hook has a Job',
      ) as Job;
      let ended = false;
      const running = runJob(t, cluster, job, { namespace, token: account.token }).finally(() => {
        ended = true;
      });
      const asked = async (): Promise<boolean> =>
        (await usedRights(cluster, account)).used.has('get apps/daemonsets');
      await until(asked, { what: 'the hook waits' });
      t.false(ended);
      const { metadata } = (await cluster.get(agents)) as StoredTestObject & {
        readonly metadata: { readonly finalizers?: readonly string[] };
      };
      // The garbage collector, which this server lacks, takes it away once the pods are gone.
      t.deepEqual(metadata.finalizers, ['foregroundDeletion']);
      await cluster.admin.request({
        method: 'PATCH',
        path: await cluster.path(agents),
        contentType: 'application/merge-patch+json',
        body: { metadata: { finalizers: null } },
      });
      await running;
      // A second attempt finds nothing to do.
      await runJob(t, cluster, job, { namespace, token: account.token });
      const { used, refused } = await usedRights(cluster, account);
      t.deepEqual(refused, []);
      t.deepEqual([...used].toSorted(), [...account.rights].toSorted());
      const stranger = { namespace, token: await cluster.token(namespace, 'stranger') };
      const refusal = await t.throwsAsync(runJob(t, cluster, job, stranger));
      t.regex(errorText(refusal), /weft-node-agent: .*forbidden.*403/s);
    });

    test('each form with agents has the hook, and no other form', async (t) => {
      const jobOf = async (values: object): Promise<TestObject | undefined> =>
        (await render('istio-system', values)).find((one) => one.kind === 'Job' && isHook(one));
      t.like(await jobOf({ profile: 'compact' }), {
        spec: { template: { spec: { serviceAccountName: ACCOUNT } } },
      });
      t.is(await jobOf({ replaceZtunnel: { enabled: true } }), undefined);
    });
  });
}
