import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import test from 'ava';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { CLOSE_GRACE_MS } from '../../workers/listener/limits.ts';
import { Pod } from '../../workers/listener/pod.ts';
import { connectTunnel } from '../../workers/listener/tunnel/tunnel-client.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { listenerSettings } from '../support/listener-kit.ts';
import { ownPort } from '../support/ports.ts';
import { startPod } from '../support/start-pod.ts';
import { CLIENT, SERVER, createTunnelPki } from '../support/tunnel-pki.ts';
import { until } from '../support/until.ts';
import { workload } from '../support/workloads.ts';

test.serial('pods of a thread have lines of their own for what they refuse', async (t) => {
  const { pod, context, lines, task } = await startPod(t);
  const other = new Pod({ ...task, pod: { ...task.pod, uid: 'uid-2' } }, context);
  const denial = { source: 'a', destination: 'b', direction: 'inbound' } as const;
  for (let count = 0; count < 1_000; count += 1) pod.deny(denial, new Error('noise'));
  other.deny(denial, new Error('a probe'));
  t.true(lines.at(-1)?.includes('a probe'));
  await pod.stop('immediate', 0);
  t.true(lines.at(-1)?.includes('access.denials-left-out'), 'said before the pod is gone');
  t.true(lines.at(-1)?.includes('uid-1'));
  await other.stop('immediate', 0);
});

test.serial('a pod that ended before it started binds nothing', async (t) => {
  const servers = (): number =>
    process.getActiveResourcesInfo().filter((kind) => kind === 'TCPServerWrap').length;
  const before = servers();
  const pod = (await startPod(t)).pod;
  await pod.stop('immediate', 0);
  await pod.start();
  t.is(servers(), before);
});

test.serial('a pod that ended while a certificate was waited for dials nobody', async (t) => {
  const peer = createServer((socket) => socket.destroy());
  await new Promise<void>((resolve) => peer.listen(0, '127.0.0.1', resolve));
  t.teardown(() => peer.close());
  const { pod, context, said } = await startPod(t);
  const key = {
    sourceIdentity: CLIENT,
    expectedIdentities: [SERVER],
    destinationIp: '127.0.0.1',
    destinationPort: (peer.address() as AddressInfo).port,
    sourceIp: '127.0.0.1',
  };
  const refused = t.throwsAsync(
    connectTunnel(pod, key, () => Promise.reject(new Error('the peer was dialled'))),
    { code: 'TUNNEL_CLOSED', message: 'the pod has ended' },
  );
  await until(() => said.some(({ type }) => type === 'certificate.needed'), {
    what: 'the request for a certificate',
  });
  // From here on the descriptor number of its namespace may be reused.
  await pod.stop('immediate', 0);
  const { key: privateKey, ...source } = await (await createTunnelPki()).issue(CLIENT);
  if (typeof privateKey === 'string') throw new Error('the key is no KeyObject');
  context.certificates.put({ ...source, key: privateKey, serialNumber: '01' });
  await refused;
});

test.serial(
  'a pod that ended without one of its sockets leaves the next one of its uid alone',
  async (t) => {
    const port = await ownPort();
    const {
      pod: unused,
      context,
      said,
      lines,
      task,
      tell,
    } = await startPod(t, { inboundHbone: port });
    await unused.stop('immediate', 0);
    const clock = new FakeClock();
    const first = new Pod(task, { ...context, clock });
    await first.start();
    const policy = { setId: '', unknown: [], pending: false, denyAll: null };
    const word = { workload: workload(), services: [], policy };
    tell({ type: 'local', uid: 'uid-1', pod: word });
    const sockets = (): number =>
      process.getActiveResourcesInfo().filter((kind) => kind === 'TCPSocketWrap').length;
    const before = sockets();
    const client = connect(port, '127.0.0.1');
    await once(client, 'connect');
    client.write('hello');
    await until(() => said.some(({ type }) => type === 'certificate.needed'), {
      what: 'the handshake that waits for a certificate',
    });
    client.resetAndDestroy();
    await until(() => sockets() === before, { what: 'the socket to close' });
    const stopped = first.stop('immediate', 0);
    await clock.advance(CLOSE_GRACE_MS);
    await stopped;
    const second = new Pod(task, context);
    tell({ type: 'local', uid: 'uid-1', pod: word });
    await until(() => context.state.local('uid-1'), { what: 'word of the second pod' });
    context.certificates.unavailable(CLIENT, new MeshError('IDENTITY_UNAVAILABLE', 'too late'));
    // This ends the first pod's last connection.
    await until(() => lines.some((line) => line.includes('too late')), { what: 'the refusal' });
    t.not(context.state.local('uid-1'), null);
    await second.stop('immediate', 0);
  },
);

// docs/decisions/budgets.md
test.serial('a pod that holds all it may takes no tunnel until it holds less', async (t) => {
  const port = await ownPort();
  const { pod, context, said } = await startPod(t, { inboundHbone: port });
  await pod.start();
  const { bytesPerPod } = listenerSettings.limits;
  pod.bytes.receive(bytesPerPod);
  const refused = connect(port, '127.0.0.1');
  refused.on('error', () => undefined);
  refused.resume().write('hello');
  await once(refused, 'close');
  t.is(context.metrics.earlyDenials['byte-limit'], 1);
  t.false(said.some(({ type }) => type === 'certificate.needed'));
  pod.bytes.receive(-bytesPerPod);
  const taken = connect(port, '127.0.0.1');
  t.teardown(() => taken.destroy());
  taken.write('hello');
  await until(() => pod.bytes.bytes > 0, { what: 'its first bytes' });
  t.is(context.metrics.earlyDenials['byte-limit'], 1);
});
