/** The plugin behind the real `bridge`, `host-local` and `portmap`, run by `cnitool` as a container runtime does. */
import test from 'ava';
import type { ExecutionContext } from 'ava';
import type { TestNetns } from '../support/netns-kit.ts';
import { netnsTest } from '../support/netns-test.ts';
import { killed, spawnAgent } from '../support/node-agent-kit.ts';
import { startServingProxy } from '../support/serving-proxy.ts';
import { until } from '../support/until.ts';
import { AMBIENT, addWhenReady, cniNode } from './support/node.ts';
import type { CniNode } from './support/node.ts';
import { cniPrograms } from './support/programs.ts';

const PODS_AT_ONCE = 50;
/** Fifty pods need seconds, and minutes on a busy machine. */
const BUSY_MACHINE_MS = 300_000;

const programs = await cniPrograms();
if ('missing' in programs) process.stdout.write(`SKIPPED cni: ${programs.missing}\n`);

const hasRules = async (netns: TestNetns): Promise<boolean> =>
  (await netns.exec('iptables-nft-save')).includes('ISTIO_OUTPUT');

/** Declares a test, which is skipped where the programs are missing. */
function cniTest(title: string, body: (t: ExecutionContext, node: CniNode) => Promise<void>): void {
  if ('missing' in programs) {
    test.skip(`${title}: ${programs.missing}`, () => undefined);
    return;
  }
  netnsTest(title, async (t) => body(t, await cniNode(t, programs)));
}

cniTest(
  'ADD of a pod of the mesh ends when its rules and listeners stand; others get neither',
  async (t, node) => {
    const proxy = startServingProxy(t, node.site.socket);
    spawnAgent(t, node.site);
    await node.installed();
    const inside = await node.pod('inside', AMBIENT);
    const outside = await node.pod('outside');
    await until(() => proxy.told.includes('session'), { what: 'the proxy is connected' });
    for (const round of [1, 2]) {
      const result = JSON.parse(await addWhenReady(node, 'demo/inside', inside)) as {
        readonly ips: readonly unknown[];
      };
      t.is(result.ips.length, 1, `round ${round}`);
      t.true(proxy.served.has('u-inside'));
      t.true(await hasRules(inside));
      await node.cni('add', 'demo/outside', outside);
      t.false(await hasRules(outside));
      await node.cni('check', 'demo/inside', inside);
      await node.cni('status', 'demo/inside', inside);
      await node.cni('del', 'demo/inside', inside);
      await node.cni('del', 'demo/outside', outside);
      await node.cni('gc', 'demo/inside', inside);
    }
  },
);

cniTest(
  'agent killed: exempt pods start, and others do not while nobody can judge them',
  async (t, node) => {
    startServingProxy(t, node.site.socket);
    const agent = spawnAgent(t, node.site);
    await node.installed();
    await killed(agent);
    const netns = await node.pod('late', AMBIENT);
    await node.cni('add', 'kube-system/dns', netns);
    await node.cni('del', 'kube-system/dns', netns);
    await t.throwsAsync(node.cni('add', 'demo/late', netns), {
      message: /nobody can tell whether pod demo\/late belongs to the mesh/,
    });
    // A runtime cleans up after a failed ADD, without the agent.
    await node.cni('del', 'demo/late', netns);
    spawnAgent(t, node.site);
    await addWhenReady(node, 'demo/late', netns);
    t.true(await hasRules(netns));
  },
);

cniTest(
  'fifty pods start at once, half of them of the mesh, and the agent is killed meanwhile: pods of the mesh have their rules when they start',
  async (t, node) => {
    t.timeout(2 * BUSY_MACHINE_MS);
    const proxy = startServingProxy(t, node.site.socket);
    const agent = spawnAgent(t, node.site);
    await node.installed();
    const pods = await Promise.all(
      Array.from({ length: PODS_AT_ONCE }, async (_, index) => {
        const [name, member] = [`k${index}`, index % 2 === 0];
        return { name, member, netns: await node.pod(name, member ? AMBIENT : {}) };
      }),
    );
    const wrong: string[] = [];
    let started = 0;
    const starts = Promise.all(
      pods.map(async ({ name, member, netns }) => {
        await addWhenReady(node, `demo/${name}`, netns, { timeoutMs: BUSY_MACHINE_MS });
        // A runtime starts the pod at this moment.
        if ((await hasRules(netns)) !== member) wrong.push(name);
        started += 1;
      }),
    );
    await until(() => started >= PODS_AT_ONCE / 10, {
      what: 'some pods have started',
      timeoutMs: BUSY_MACHINE_MS,
    });
    await killed(agent);
    t.true(started < PODS_AT_ONCE, 'others have not');
    spawnAgent(t, node.site);
    await starts;
    t.deepEqual(wrong, []);
    for (const { name, member } of pods) t.is(proxy.served.has(`u-${name}`), member, name);
  },
);
