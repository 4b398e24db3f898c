/** The network namespace of a pod by a real containerd. */
import test from 'ava';
import { Sandboxes } from '../../lib/cri/sandboxes.ts';
import { netnsIdentity, sameNetns } from '../../lib/linux/netns.ts';
import { PodNamespaces } from '../../services/node-agent/netns/pod-namespaces.ts';
import { keptLog } from '../support/actor-context.ts';
import { createNetns } from '../support/netns-kit.ts';
import { podRecord } from '../support/pod-records.ts';
import { Containerd } from './support/containerd.ts';
import { cniPrograms } from './support/programs.ts';

const programs = await cniPrograms();
const missing = 'missing' in programs ? programs.missing : Containerd.unavailable();
if (missing !== null) process.stdout.write(`SKIPPED cri: ${missing}\n`);
const criTest = missing === null ? test : test.skip;

criTest('a pod is found by its newest sandbox, and by nothing else', async (t) => {
  if ('missing' in programs) throw new Error(programs.missing);
  const host = await createNetns(t, 'host');
  const runtime = await Containerd.start(t, host, programs);
  const sandboxes = new Sandboxes(runtime.socket);
  t.teardown(() => sandboxes.close());
  const { log, lines } = keptLog('node-agent');
  const find = (uid: string, addresses: readonly string[]) =>
    new PodNamespaces({ procDir: '/proc', sandboxes, log }).open({
      ...podRecord({ uid, netns: '' }),
      netns: null,
      addresses: [...addresses],
    });

  t.is(await sandboxes.processOf('uid-1'), null);
  const first = await runtime.sandbox('web', 'uid-1');
  const other = await runtime.sandbox('other', 'uid-2');
  const found = await find('uid-1', [first.address]);
  t.true(sameNetns(found.identity, await runtime.netnsOf(first)));
  t.false(sameNetns(found.identity, await runtime.netnsOf(other)));
  t.is(netnsIdentity(found.fd).inode, found.identity.inode);
  found.release();

  // A sandbox that has none of the pod's addresses is another pod's, or is not ready: the processes have to tell.
  await t.throwsAsync(find('uid-1', ['10.99.99.99']), { code: 'NETNS_UNAVAILABLE' });
  t.deepEqual(lines, []);

  // Kubelet makes a new sandbox when the old one has failed.
  await runtime.stopSandbox(first);
  t.is(await sandboxes.processOf('uid-1'), null);
  const second = await runtime.sandbox('web', 'uid-1', 1);
  const again = await find('uid-1', [second.address]);
  t.true(sameNetns(again.identity, await runtime.netnsOf(second)));
  again.release();

  await runtime.stop();
  await t.throwsAsync(sandboxes.processOf('uid-1'), {
    code: 'STATE_UNAVAILABLE',
    message: /the container runtime at .* did not answer ListPodSandbox/,
  });
  await t.throwsAsync(find('uid-1', [second.address]), { code: 'NETNS_UNAVAILABLE' });
  t.deepEqual(
    lines.map(({ message }) => message),
    ['netns.runtime-failed'],
  );
});
