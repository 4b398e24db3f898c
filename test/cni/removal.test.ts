/** A removal that the file system does not let finish. */
import { lstat, mkdir, readdir, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import test from 'ava';
import { Cni } from '../../services/node-agent/cni/cni.ts';
import { actorContext } from '../support/actor-context.ts';
import { installSite } from './support/installer.ts';
import type { InstallSite } from './support/installer.ts';

const OWN = '02-weft-cni.conflist';
const KUBECONFIG = 'weft-cni-kubeconfig';
const SINGLE = '{"cniVersion":"1.0.0","name":"net","type":"bridge"}';

/** Puts a folder, which no `rm` of a file removes, in the place of a file. */
async function block(path: string): Promise<void> {
  await rm(path, { force: true });
  await mkdir(path);
}

test('a kubeconfig that cannot be removed is named, and everything else goes', async (t) => {
  const site = await installSite(t, { kubeconfig: () => Promise.resolve('text') });
  const primary = await site.putFixture('10-calico.conflist');
  const installer = await site.start();
  await installer.close();
  const path = join(site.options.runDir, KUBECONFIG);
  await block(path);
  const error = await t.throwsAsync(installer.remove());
  t.true(error.message.startsWith(`${path} stays: `), error.message);
  t.deepEqual(await site.files(), { '10-calico.conflist': primary });
  t.deepEqual(await readdir(site.options.binDir), []);
});

test('a list that cannot be removed keeps the program that it names, and other lists go', async (t) => {
  const site = await installSite(t, { ownList: null });
  await site.put('10-x.conf', SINGLE);
  const installer = await site.start();
  await installer.close();
  // The saved file cannot come back.
  await mkdir(join(site.options.netDir, '10-x.conf'));
  await site.put('20-y.conflist', '{"name":"n","plugins":[{"type":"x"},{"type":"weft-cni"}]}');
  const error = await t.throwsAsync(installer.remove());
  const { netDir, binDir } = site.options;
  t.regex(error.message, new RegExp(`^${join(netDir, '10-x.conflist')} stays: EISDIR`));
  t.regex(error.message, new RegExp(`; ${join(binDir, 'weft-cni')} stays for the lists of`));
  await rm(join(netDir, '10-x.conf'), { recursive: true });
  t.notRegex((await site.files())['20-y.conflist'] ?? '', /weft-cni/);
  t.true((await lstat(join(binDir, 'weft-cni'))).isFile());
  await installer.remove();
  t.like(await site.files(), { '10-x.conf': SINGLE, '10-x.conflist': undefined });
  t.deepEqual(await readdir(binDir), []);
});

test('a list that is gone when its turn comes is no failure', async (t) => {
  const site = await installSite(t, { ownList: null });
  await site.put('10-x.conf', SINGLE);
  const installer = await site.start();
  // The removal of the list takes the target away.
  await symlink('10-x.conflist', join(site.options.netDir, '20-x.conflist'));
  await installer.close();
  await installer.remove();
  t.deepEqual(await readdir(site.options.binDir), []);
});

/** Opens the plugin's parts without Kubernetes. */
async function openCni(
  t: ExecutionContext,
  { options }: InstallSite,
): Promise<{
  readonly cni: Cni;
  readonly lines: ReturnType<typeof actorContext>['lines'];
}> {
  const { context, lines } = actorContext('node-agent', 'node');
  const cni = await Cni.open(
    {
      ...options,
      hostRoot: '/',
      onUnknown: 'deny',
      namespace: null,
      connection: { kubeconfig: null, serviceHost: null, servicePort: null },
    },
    {
      context,
      rules: { excludedNamespaces: [], selectors: [] },
      // No pod starts here.
      source: { find: () => Promise.resolve(null), place: () => undefined },
      pods: {
        outcome: () => Promise.resolve({ state: 'enabled', reason: null }),
        holderOf: () => null,
      },
    },
  );
  t.teardown(() => cni.close());
  return { cni, lines };
}

test('an agent that leaves its node goes on when the plugin cannot be removed', async (t) => {
  const site = await installSite(t);
  await site.putFixture('10-calico.conflist');
  const { cni, lines } = await openCni(t, site);
  await block(join(site.options.netDir, OWN));
  await t.notThrowsAsync(cni.remove());
  const told = lines.find(({ message }) => message === 'cni.not-removed');
  t.is(told?.['level'], 'error');
  t.regex(String(told?.['problem']), new RegExp(`/${OWN} stays: `));
});
