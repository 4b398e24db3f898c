/** Connections from before an enrolment, with `WEFT_ENROL_EXISTING=reset`. */
import type { ExecutionContext } from 'ava';
import { keptConnection } from '../support/kept-connection.ts';
import { createPodPair } from '../support/netns-kit.ts';
import type { TestNetns } from '../support/netns-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { agentSite, startAgent } from '../support/node-agent-kit.ts';
import { podRecord, writeRecord } from '../support/pod-records.ts';
import { startServingProxy } from '../support/serving-proxy.ts';
import { until } from '../support/until.ts';

const RESET = { WEFT_ENROL_EXISTING: 'reset' };

/** The end in the pod is aborted, the other one reset. */
const ENDED = /ECONNRESET|ECONNABORTED|EPIPE/;

type Talk = (word: string) => Promise<string>;

async function talks(
  t: ExecutionContext,
  pod: TestNetns,
  peer: TestNetns,
): Promise<{ readonly plain: readonly Talk[]; readonly kept: readonly Talk[] }> {
  const proxy = { from: pod, to: peer, ip: '10.9.0.1', mark: 0x539 };
  const made = {
    plain: [
      await keptConnection(t, { from: pod, to: peer, ip: '10.9.0.1' }),
      await keptConnection(t, { from: peer, to: pod, ip: '10.9.0.2' }),
      await keptConnection(t, { from: peer, to: pod, ip: 'fd09::2' }),
    ],
    kept: [
      await keptConnection(t, { from: pod, to: pod, ip: '127.0.0.1' }),
      await keptConnection(t, { from: pod, to: pod, ip: '::1' }),
      await keptConnection(t, { from: pod, to: pod, ip: 'fd09::2' }),
      await keptConnection(t, proxy),
    ],
  };
  for (const talk of [...made.plain, ...made.kept]) t.is(await talk('before'), 'before');
  return made;
}

test('connections from before are ended on both ends, those within the pod and of the proxy are not', async (t) => {
  const site = await agentSite(t, RESET);
  const agent = await startAgent(t, site);
  startServingProxy(t, site.socket);
  const { pod, peer } = await createPodPair(t);
  const { plain, kept } = await talks(t, pod, peer);
  await writeRecord(site.podsDir, 'u-1', podRecord({ uid: 'u-1', netns: pod.path }));
  await until(() => agent.state('u-1') === 'enabled', { what: 'enabled' });
  for (const talk of plain) await t.throwsAsync(talk('after'), { message: ENDED });
  for (const talk of kept) t.is(await talk('after'), 'after');
  t.notRegex(await peer.exec('ss', '-Hnt', 'state', 'established'), /:8080|fd09::2/);
  const told = agent.lines.find(({ message }) => message === 'pod.connections-reset');
  t.is(told?.['connections'], plain.length);
});

test('an agent that finds the redirection in force resets nothing, one that finds it missing resets', async (t) => {
  const site = await agentSite(t, RESET);
  const first = await startAgent(t, site);
  startServingProxy(t, site.socket);
  const { pod, peer } = await createPodPair(t);
  await writeRecord(site.podsDir, 'u-1', podRecord({ uid: 'u-1', netns: pod.path }));
  await until(() => first.state('u-1') === 'enabled', { what: 'enabled' });
  await first.stop();
  const nat = ['iptables-nft', '-t', 'nat'] as const;
  const accept = ['OUTPUT', '-d', '10.9.0.1', '-j', 'ACCEPT'] as const;
  await pod.exec(...nat, '-I', ...accept);
  const exempt = await keptConnection(t, { from: pod, to: peer, ip: '10.9.0.1' });
  t.is(await exempt('before'), 'before');
  await pod.exec(...nat, '-D', ...accept);
  const second = await startAgent(t, site);
  await until(() => second.state('u-1') === 'enabled', { what: 'enabled by the second agent' });
  t.is(await exempt('after'), 'after');
  await second.stop();
  await pod.exec('sh', '-c', 'iptables-nft -t nat -F; ip6tables-nft -t nat -F');
  const { plain, kept } = await talks(t, pod, peer);
  const third = await startAgent(t, site);
  await until(() => third.state('u-1') === 'enabled', { what: 'enabled by the third agent' });
  for (const talk of [...plain, exempt]) {
    await t.throwsAsync(talk('after'), { message: ENDED });
  }
  for (const talk of kept) t.is(await talk('after'), 'after');
});
