/** The node's rules for kubelet's probes, in real namespaces. */
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../lib/clock/clock.ts';
import { closeFd, openNetns } from '../../lib/linux/netns.ts';
import { listenTcp } from '../../lib/linux/sockets.ts';
import { ProbeRules } from '../../services/node-agent/host/probe-rules.ts';
import { keptLog } from '../support/actor-context.ts';
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

test('the node’s own connections to pods come from the probe address, forwarded ones do not', async (t) => {
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
  const table = (): Promise<string> => node.exec('/usr/sbin/nft', 'list', 'ruleset');
  const { log, lines } = keptLog('node-agent');
  const failures: unknown[] = [];
  const rules = new ProbeRules({
    netns: node.path,
    probeAddress: PROBE,
    clock: { ...systemClock, every: (_ms, run) => systemClock.every(50, run) },
    log,
    supervise: (work) => void work.catch((error: unknown) => failures.push(error)),
  });
  rules.set('u-1', ['10.9.1.2', 'fd09:1::2']);
  rules.set('u-0', ['10.9.1.2']);
  rules.start();
  await until(async () => (await table()).includes('fd09:1::2'), { what: 'the rules' });
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
    await node.exec('/usr/sbin/nft', 'flush', 'ruleset');
  }
  const repaired = (): boolean =>
    lines.some(({ message }) => message === 'host.probe-rules-repaired');
  await until(
    async () => {
      await node.exec('/usr/sbin/nft', 'flush', 'ruleset');
      return repaired();
    },
    { what: 'the log tells of a repair' },
  );
  await until(async () => /10\.9\.1\.2[^]*10\.9\.3\.19/.test(await table()), {
    what: 'the repair',
  });
  rules.set('u-1', null);
  await until(async () => !(await table()).includes('10.9.1.2'), { what: 'the pod has left' });
  t.is(await seen(node, '10.9.1.2'), '10.9.1.1');
  t.is(rules.problem, null);
  await rules.close();
  await rules.remove();
  t.notRegex(await table(), /weft-host/);
  t.deepEqual(failures, []);
});
