/** Rules and routes of other programs in a pod's namespace. */
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { ExecutionContext } from 'ava';
import { listenTcp } from '../../lib/linux/sockets.ts';
import { createNetns, createPodPair } from '../support/netns-kit.ts';
import type { TestNetns } from '../support/netns-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { EXPECTED, open, redirector, saved } from '../support/redirect-kit.ts';

for (const flavour of ['nft', 'legacy', 'native'] as const) {
  test(`a removal leaves the route of a pod's own TPROXY (${flavour})`, async (t) => {
    const netns = await createNetns(t);
    const target = open(t, netns);
    const { tool } = await redirector(t, flavour);
    for (const [family, all] of [
      ['-4', '0.0.0.0/0'],
      ['-6', '::/0'],
    ] as const) {
      await netns.ip(`${family} route add local ${all} dev lo table 100`);
    }
    const kept = async (when: string): Promise<void> => {
      for (const family of ['-4', '-6']) {
        t.regex(await netns.ip(`${family} route show table 100`), /^local default dev lo/, when);
        t.notRegex(await netns.ip(`${family} rule show`), /32764/, when);
      }
    };
    await tool.remove(target);
    await kept('before the rule that looks it up');
    await netns.ip('-4 rule add fwmark 1 lookup 100');
    await netns.ip('-6 rule add fwmark 1 lookup 100');
    await tool.remove(target);
    await kept('outside the mesh');
    t.true((await tool.apply(target, EXPECTED)).fresh);
    await tool.remove(target);
    await kept('after an enrolment');
    t.notRegex(await saved(netns, flavour), /ISTIO_|istio/);
  });
}

/** Answers connections to a port of the namespace with its number. */
async function answer(t: ExecutionContext, netnsFd: number, port: number): Promise<void> {
  const options = { address: '::', port, mark: 0, reusePort: false, transparent: 'off' } as const;
  const server = createServer((peer) => {
    peer.on('error', () => peer.destroy());
    peer.end(String(port));
  });
  server.listen({ fd: listenTcp({ ...options, netnsFd }).fd });
  await once(server, 'listening');
  t.teardown(() => void server.close());
}

const ACCEPT_ALL = {
  nft: acceptFirst('nft'),
  legacy: acceptFirst('legacy'),
  // A verdict of one base chain does not end the next one.
  native: `nft 'add table inet other
    add chain inet other output { type nat hook output priority -150; }
    add chain inet other prerouting { type nat hook prerouting priority -150; }
    add rule inet other output accept; add rule inet other prerouting accept'`,
} as const;

function acceptFirst(flavour: 'nft' | 'legacy'): string {
  return ['iptables', 'ip6tables']
    .flatMap((base) =>
      ['OUTPUT', 'PREROUTING'].map(
        (chain) => `${base}-${flavour} -t nat -I ${chain} -p tcp -j ACCEPT`,
      ),
    )
    .join('; ');
}

for (const flavour of ['nft', 'legacy', 'native'] as const) {
  test(`rules of others that accept everything first bypass no redirection (${flavour})`, async (t) => {
    const { pod, peer } = await createPodPair(t);
    const target = open(t, pod);
    const { tool } = await redirector(t, flavour);
    const accept = `PATH=/usr/sbin:/sbin:/usr/bin:/bin; ${ACCEPT_ALL[flavour]}`;
    for (const port of [15_001, 15_006]) await answer(t, target.netnsFd, port);
    const reached = (from: TestNetns, ip: string): Promise<string> =>
      from.exec('bash', '-c', `exec 3<>/dev/tcp/${ip}/80; cat <&3`);
    const redirected = async (): Promise<void> => {
      for (const [podIp, peerIp] of [
        ['10.9.0.2', '10.9.0.1'],
        ['fd09::2', 'fd09::1'],
      ] as const) {
        t.is(await reached(pod, peerIp), '15001');
        t.is(await reached(peer, podIp), '15006');
      }
    };
    await pod.exec('sh', '-c', accept);
    await tool.apply(target, EXPECTED);
    await redirected();
    await pod.exec('sh', '-c', accept);
    const found = await tool.check(target, EXPECTED);
    const { repaired } = await tool.apply(target, EXPECTED);
    t.deepEqual(repaired, found);
    t.deepEqual(
      found,
      flavour === 'native'
        ? []
        : [4, 6].flatMap((family) => [
            `IPv${family} nat PREROUTING has rules of others before ISTIO_PRERT`,
            `IPv${family} nat OUTPUT has rules of others before ISTIO_OUTPUT`,
          ]),
    );
    await redirected();
    const accepting = flavour === 'native' ? /^\t\taccept$/gm : /-A \S+ -p tcp -j ACCEPT/g;
    t.is((await saved(pod, flavour)).match(accepting)?.length, flavour === 'native' ? 4 : 8);
  });
}
