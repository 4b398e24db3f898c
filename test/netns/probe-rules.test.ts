/** The node's rules for kubelet's probes, in real namespaces. */
import { once } from 'node:events';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../lib/clock/clock.ts';
import type { Clock } from '../../lib/clock/clock.ts';
import { closeFd, openNetns } from '../../lib/linux/netns.ts';
import { listenTcp } from '../../lib/linux/sockets.ts';
import { chooseHostProbes } from '../../lib/redirect/choose-host-probes.ts';
import { ProbeRules } from '../../services/node-agent/host/probe-rules.ts';
import { HOST_RULES_CHECK_MS } from '../../services/node-agent/limits.ts';
import { keptLog } from '../support/actor-context.ts';
import { makeScratch } from '../support/leftovers.ts';
import { connectNetns, createNetns } from '../support/netns-kit.ts';
import type { TestNetns } from '../support/netns-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { until } from '../support/until.ts';

const PROBE = { v4: '169.254.7.127', v6: 'fd16:9254:7127:1337:ffff:ffff:ffff:ffff' };

/** Tells each caller its own address. */
async function serveAddresses(t: ExecutionContext, netns: TestNetns): Promise<number> {
  const netnsFd = openNetns(netns.path);
  t.teardown(() => closeFd(netnsFd));
  const options = { address: '::', port: 0, mark: 0, reusePort: false } as const;
  const { fd, port } = listenTcp({ ...options, netnsFd, transparent: 'off' });
  const server = createServer((peer) => {
    peer.on('error', () => peer.destroy());
    peer.end(String(peer.remoteAddress));
  });
  server.listen({ fd });
  await once(server, 'listening');
  t.teardown(() => void server.close());
  return port;
}

/** Ways to write the rules, how to list them, and how another program removes them. */
const WAYS = {
  nft: { list: '/usr/sbin/nft list ruleset', clear: '/usr/sbin/nft flush ruleset' },
  legacy: {
    list: 'iptables-legacy-save; ip6tables-legacy-save; ipset save',
    clear: 'iptables-legacy -w -t nat -F',
  },
};

/** The rules of either way. */
const EVERYTHING = [
  'sh',
  '-c',
  '/usr/sbin/nft list ruleset; iptables-legacy-save; ip6tables-legacy-save; ipset list',
] as const;

for (const way of ['nft', 'legacy'] as const) {
  test(`the node’s own connections to pods come from the probe address, forwarded ones do not (${way})`, async (t) => {
    const [node, pod, other] = [
      await createNetns(t, 'node'),
      await createNetns(t, 'pod'),
      await createNetns(t, 'other'),
    ];
    await node.exec('sysctl', '-qw', 'net.ipv4.ip_forward=1', 'net.ipv6.conf.all.forwarding=1');
    const links = [
      [pod, 'veth1', '10.9.1', 'fd09:1'],
      [other, 'veth2', '10.9.2', 'fd09:2'],
    ] as const;
    for (const [netns, device, v4, v6] of links) {
      await connectNetns(
        {
          netns,
          device: 'eth0',
          addresses: [`${v4}.2/24`, `${v6}::2/64`],
          gateways: [`${v4}.1`, `${v6}::1`],
        },
        { netns: node, device, addresses: [`${v4}.1/24`, `${v6}::1/64`] },
      );
    }
    const port = await serveAddresses(t, pod);
    const seen = async (from: TestNetns, ip: string): Promise<string> =>
      (await from.exec('bash', '-c', `exec 3<>/dev/tcp/${ip}/${port}; cat <&3`)).replace(
        '::ffff:',
        '',
      );
    const table = (): Promise<string> => node.exec('sh', '-c', WAYS[way].list);
    const clear = (): Promise<string> => node.exec('sh', '-c', WAYS[way].clear);
    const chosen = await chooseHostProbes(
      { flavour: way, ipv6: true },
      { force: way, lockDir: '/tmp' },
    );
    const { log, lines } = keptLog('node-agent');
    const failures: unknown[] = [];
    const rules = new ProbeRules({
      netns: node.path,
      procDir: '/proc',
      probeAddress: PROBE,
      chosen,
      clock: { ...systemClock, every: (_ms, run) => systemClock.every(50, run) },
      log,
      supervise: (work) => void work.catch((error: unknown) => failures.push(error)),
    });
    t.teardown(() => rules.close());
    rules.set('u-1', ['10.9.1.2', 'fd09:1::2']);
    rules.set('u-0', ['10.9.1.2']);
    rules.start();
    const written = async (): Promise<boolean> => {
      const listed = await table();
      return listed.includes('fd09:1::2') && listed.includes(PROBE.v4) && listed.includes(PROBE.v6);
    };
    await until(written, { what: 'the rules' });
    t.is(await seen(node, '10.9.1.2'), PROBE.v4);
    t.is(await seen(node, 'fd09:1::2'), PROBE.v6);
    t.is(await seen(other, '10.9.1.2'), '10.9.2.2');
    t.is(await seen(other, 'fd09:1::2'), 'fd09:2::2');
    // The address of a pod that has left belongs to a later one already.
    rules.set('u-0', null);
    await until(async () => /10\.9\.1\.2 comment "u-1"/.test(await table()), {
      what: 'the other uid',
    });
    t.is(await seen(node, '10.9.1.2'), PROBE.v4);
    // Another program that flushes at any moment of a write is answered too.
    for (let round = 0; round < 20; round += 1) {
      rules.set('u-2', [`10.9.3.${round}`]);
      await clear();
    }
    const repaired = (): boolean =>
      lines.some(({ message }) => message === 'host.probe-rules-repaired');
    await until(
      async () => {
        await clear();
        return repaired();
      },
      { what: 'the log tells of a repair' },
    );
    const whole = async (): Promise<boolean> => {
      const listed = await table();
      return listed.includes('10.9.1.2 ') && listed.includes('10.9.3.19 ');
    };
    await until(whole, { what: 'the repair' });
    rules.set('u-1', null);
    await until(async () => !(await table()).includes('10.9.1.2'), { what: 'the pod has left' });
    t.is(await seen(node, '10.9.1.2'), '10.9.1.1');
    await until(() => rules.problem === null, { what: 'the last flush to be answered' });
    await rules.close();
    await rules.remove();
    t.notRegex(await node.exec(...EVERYTHING), /weft/i);
    t.deepEqual(failures, []);
  });
}

/** Never calls what is due once a minute, and often what is due sooner. */
const LOOKS_ONLY: Clock = {
  ...systemClock,
  every: (ms, run) =>
    ms === HOST_RULES_CHECK_MS ? { cancel: () => {} } : systemClock.every(20, run),
};

for (const way of ['nft', 'legacy'] as const) {
  test(`a flush is answered long before the minute’s full read (${way})`, async (t) => {
    const node = await createNetns(t, 'node');
    const chosen = await chooseHostProbes(
      { flavour: way, ipv6: true },
      { force: way, lockDir: '/tmp' },
    );
    const { log } = keptLog('node-agent');
    const rules = new ProbeRules({
      netns: node.path,
      procDir: '/proc',
      probeAddress: PROBE,
      chosen,
      clock: LOOKS_ONLY,
      log,
      supervise: (work) => void work,
    });
    t.teardown(() => rules.close());
    rules.set('u-1', ['10.9.1.2']);
    rules.start();
    const whole = async (): Promise<boolean> =>
      chosen.scripts.holds(
        await node.exec('sh', '-c', chosen.scripts.list.replace('nft ', '/usr/sbin/nft ')),
        new Map([['10.9.1.2', 'u-1']]),
      );
    await until(whole, { what: 'the rules' });
    await node.exec('sh', '-c', WAYS[way].clear);
    await until(whole, { what: 'the repair' });
    // The flush may have come before the agent had read its first rules back, which it tells as a problem.
    await until(() => rules.problem === null, { what: 'the agent to find them whole' });
    t.pass();
  });
}

test('rules that an earlier agent wrote the other way go, those of other programs stay', async (t) => {
  const node = await createNetns(t, 'node');
  await node.exec(
    'iptables-legacy',
    '-w',
    '-t',
    'nat',
    '-A',
    'POSTROUTING',
    '-d',
    '192.0.2.9',
    '-j',
    'ACCEPT',
  );
  const { log } = keptLog('node-agent');
  const written = async (way: 'nft' | 'legacy'): Promise<string> => {
    const rules = new ProbeRules({
      netns: node.path,
      procDir: '/proc',
      probeAddress: PROBE,
      chosen: await chooseHostProbes({ flavour: way, ipv6: true }, { force: way, lockDir: '/tmp' }),
      clock: systemClock,
      log,
      supervise: (work) => void work,
    });
    t.teardown(() => rules.close());
    rules.set('u-1', ['10.9.1.2']);
    rules.start();
    const all = (): Promise<string> => node.exec(...EVERYTHING);
    const [mine, other] =
      way === 'nft' ? [/weft-host/, /WEFT_POSTRT|weft-probes/] : [/WEFT_POSTRT/, /weft-host/];
    await until(async () => mine.test(await all()) && !other.test(await all()), { what: way });
    await rules.close();
    return all();
  };
  t.regex(await written('nft'), /10\.9\.1\.2 comment "u-1"/);
  t.regex(await written('legacy'), /10\.9\.1\.2 comment "u-1"/);
  t.regex(await written('nft'), /-A POSTROUTING -d 192\.0\.2\.9\/32 -j ACCEPT/);
});

/** The rules of an istio-cni with iptables of either kind and with nftables, as far as a script can tell them apart. */
const ISTIO_RULES = `set -e
PATH=/usr/sbin:/sbin:/usr/bin:/bin
for v in 4 6; do
  set=istio-inpod-probes-v$v
  [ $v = 4 ] && net=inet source=${PROBE.v4} program=iptables-legacy || { net=inet6 source=${PROBE.v6} program=ip6tables-nft; }
  ipset create $set hash:ip family $net comment
  $program -w -t nat -N ISTIO_POSTRT
  $program -w -t nat -I POSTROUTING -j ISTIO_POSTRT
  $program -w -t nat -A ISTIO_POSTRT -m owner --socket-exists -p tcp -m set --match-set $set dst -j SNAT --to-source $source
  $program -w -t nat -A POSTROUTING -p sctp -j ACCEPT
done
nft -f - <<'END'
table inet istio-ambient-nat {
  set probes { type ipv4_addr; }
  chain postrouting {
    type nat hook postrouting priority 100;
    meta l4proto tcp meta skuid 0 ip daddr @probes snat ip to ${PROBE.v4}
  }
}
END
`;
const ISTIO = /ISTIO_POSTRT|istio-inpod-probes|istio-ambient-nat/;

for (const way of ['nft', 'legacy'] as const) {
  test(`rules that an istio-cni left go when the own ones stand and it no longer runs (${way})`, async (t) => {
    const node = await createNetns(t, 'node');
    const procDir = await makeScratch('proc');
    t.teardown(() => rm(procDir, { recursive: true }));
    await mkdir(join(procDir, '7'));
    await writeFile(join(procDir, '7/comm'), 'install-cni\n');
    await mkdir(join(procDir, '8'));
    const { log, lines } = keptLog('node-agent');
    const rules = new ProbeRules({
      netns: node.path,
      procDir,
      probeAddress: PROBE,
      chosen: await chooseHostProbes({ flavour: way, ipv6: true }, { force: way, lockDir: '/tmp' }),
      clock: { ...systemClock, every: (_ms, run) => systemClock.every(50, run) },
      log,
      supervise: (work) => void work,
    });
    t.teardown(() => rules.close());
    const all = (): Promise<string> => node.exec(...EVERYTHING);
    const told = (event: string): number => lines.filter(({ message }) => message === event).length;
    await node.exec('sh', '-c', ISTIO_RULES);
    const before = await all();
    rules.set('u-1', ['10.9.1.2']);
    rules.start();
    await until(() => told('host.istio-rules-kept') > 0, { what: 'the event' });
    for (const line of before.split('\n').filter((text) => ISTIO.test(text))) {
      t.true((await all()).includes(line), line);
    }
    await rm(join(procDir, '7'), { recursive: true });
    await until(() => told('host.istio-rules-replaced') > 0, { what: 'the removal' });
    const after = await all();
    t.notRegex(after, ISTIO);
    t.regex(after, /10\.9\.1\.2 comment "u-1"/);
    t.is(after.match(/-A POSTROUTING -p sctp -j ACCEPT/g)?.length, 1);
    t.is(told('host.istio-rules-kept'), 1);
    t.is(rules.problem, null);

    // Another istio-cni takes the node over.
    await node.exec('sh', '-c', ISTIO_RULES);
    rules.set('u-1', ['10.9.1.3']);
    await until(async () => /10\.9\.1\.3 /.test(await all()), { what: 'a later write' });
    await rules.close();
    await rules.remove();
    t.regex(await all(), ISTIO);
    t.notRegex(await all(), /weft/i);
  });
}
