import { mkdir, rm, stat, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../lib/clock/clock.ts';
import { threadNetns } from '../../lib/linux/netns.ts';
import { MetricRegistry } from '../../lib/metrics/registry.ts';
import { Redirector } from '../../lib/redirect/apply.ts';
import type { ApplyResult } from '../../lib/redirect/apply.ts';
import { chooseTools } from '../../lib/redirect/flavour.ts';
import { agentMetrics } from '../../services/node-agent/metrics.ts';
import { ownNamespaces } from '../../services/node-agent/netns/own-namespaces.ts';
import { PodNamespaces } from '../../services/node-agent/netns/pod-namespaces.ts';
import { PodRules } from '../../services/node-agent/pod-rules.ts';
import { RuleSets } from '../../services/node-agent/rule-sets.ts';
import { Slots } from '../../lib/async/slots.ts';
import { keptLog } from '../support/actor-context.ts';
import { makeScratch } from '../support/leftovers.ts';
import { createNetns } from '../support/netns-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { agentSite, startAgent } from '../support/node-agent-kit.ts';
import { podRecord, writeRecord } from '../support/pod-records.ts';
import { startServingProxy } from '../support/serving-proxy.ts';
import { until } from '../support/until.ts';

const SETTINGS = ['loose', 'be_liberal'].map((name) => `net.netfilter.nf_conntrack_tcp_${name}`);

/** Writes a pod's rules when conntrack has no settings before the first rules; `load` runs after these. */
async function firstPod(
  t: ExecutionContext,
  load: (sysctlDir: string) => Promise<void>,
): Promise<{ readonly settings: string; readonly said: readonly string[] }> {
  const dir = await makeScratch('settings');
  t.teardown(() => rm(dir, { recursive: true }));
  await mkdir(join(dir, 'net'));
  await symlink('/proc/sys/net/ipv4', join(dir, 'net', 'ipv4'));
  class Loading extends Redirector {
    override async apply(...args: Parameters<Redirector['apply']>): Promise<ApplyResult> {
      const result = await super.apply(...args);
      await load(dir);
      return result;
    }
  }
  const { log, lines } = keptLog('node-agent');
  const none = { accepted: 0, broken: 0, refused: 0 };
  const rules = new PodRules('u-1', {
    redirector: new Loading(await chooseTools({ ipv6: true, force: 'nft', lockDir: dir }), dir),
    slots: new Slots(() => 1, systemClock),
    proofs: new Slots(() => 1, systemClock),
    clock: systemClock,
    log,
    metrics: agentMetrics(new MetricRegistry(), {
      states: () => new Map(),
      exposures: () => new Map(),
      proxies: () => 0,
      zds: () => none,
    }),
    existing: 'keep',
    ruleSets: new RuleSets({
      ipv6: true,
      dnsCapture: false,
      probeAddress: { v4: '169.254.7.127', v6: 'fd16::1' },
    }),
    ownNamespaces: [threadNetns()],
    sysctlDir: dir,
    namespaces: new PodNamespaces({ procDir: '/proc', sandboxes: null, log }),
  });
  t.teardown(() => rules.drop());
  const pod = await createNetns(t, 'pod');
  const record = podRecord({ uid: 'u-1', netns: pod.path });
  await rules.open(record);
  t.is(await rules.write(record), 'written');
  t.is(await rules.write(record), 'kept');
  const said = lines.map((line) => `${line.message} ${String(line['setting'])}`);
  return { settings: await pod.exec('sysctl', '-n', ...SETTINGS), said };
}

test('what conntrack has no setting for before the first rules of a machine is set after them', async (t) => {
  const { settings, said } = await firstPod(t, (dir) =>
    symlink('/proc/sys/net/netfilter', join(dir, 'net', 'netfilter')).catch((error: unknown) => {
      t.like(error, { code: 'EEXIST' });
    }),
  );
  t.is(settings, '0\n1\n');
  t.deepEqual(
    said,
    SETTINGS.map((setting) => `pod.established-late ${setting}`),
  );
});

test('settings that cannot be made at all are named once, and the rules stand', async (t) => {
  const { settings, said } = await firstPod(t, async () => undefined);
  t.is(settings, '1\n0\n');
  t.deepEqual(
    said,
    SETTINGS.map((setting) => `pod.established-at-risk ${setting}`),
  );
});

test('an agent takes over a folder of its socket that kubelet made, and proxies still connect', async (t) => {
  const site = await agentSite(t);
  const folder = dirname(site.socket);
  await mkdir(folder, { mode: 0o755 });
  await startAgent(t, site);
  const proxy = startServingProxy(t, site.socket);
  await until(() => proxy.told.includes('session'), { what: 'the proxy is connected' });
  t.is((await stat(folder)).mode & 0o777, 0o700);
  t.is((await stat(site.socket)).mode & 0o777, 0o600);
});

test('no pod is enrolled in the namespace of the node, which is not that of the agent', async (t) => {
  const procDir = await makeScratch('proc');
  t.teardown(() => rm(procDir, { recursive: true }));
  const host = await createNetns(t, 'host');
  const pod = await createNetns(t, 'pod');
  await mkdir(join(procDir, '1', 'ns'), { recursive: true });
  await symlink(host.path, join(procDir, '1', 'ns', 'net'));
  const site = await agentSite(t, { WEFT_NODE_AGENT_PROC_DIR: procDir });
  for (const [uid, { path }] of [
    ['u-1', host],
    ['u-2', pod],
  ] as const) {
    await writeRecord(site.podsDir, uid, podRecord({ uid, netns: path }));
  }
  const agent = await startAgent(t, site);
  await until(() => agent.state('u-2') === 'pending', { what: 'the rules of the other pod' });
  const refused = agent.enrolments().find(({ podUid }) => podUid === 'u-1');
  t.is(refused?.state, 'waiting');
  t.regex(refused?.reason ?? '', /is that of the node or of its agent/);
  t.notRegex(await host.exec('iptables-nft-save'), /ISTIO_/);
});

test('a process 1 that may not be inspected guards no namespace besides the own one', (t) => {
  t.deepEqual(ownNamespaces('/nowhere'), [threadNetns()]);
});
