/** Part of the engine contract: the settings that each side announces and the answers it accepts, against a plain node:http2 peer. */
import { once } from 'node:events';
import { connect as connectHttp2, performServerHandshake } from 'node:http2';
import type { IncomingHttpHeaders, ServerHttp2Session, Settings } from 'node:http2';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { ExecutionContext, TestFn } from 'ava';
import { parseBaggage } from '../../lib/hbone/baggage.ts';
import type { TunnelCredentials } from '../../lib/hbone/credentials.ts';
import type { HboneEngine } from '../../lib/hbone/engine.ts';
import {
  KIB,
  MIB,
  dial,
  echo,
  openTunnel,
  request,
  roundTrip,
  serveTunnels,
  tunnelOptions,
} from '../support/tunnel-kit.ts';
import { identities } from '../support/tunnel-pki.ts';
import { rawHttp2 } from '../support/raw-http2.ts';
import { rawClient } from '../support/raw-tls.ts';
import { until } from '../support/until.ts';
import { acceptStaying } from '../support/staying-tls.ts';

interface PlainServer {
  readonly port: number;
  /** The peers that connected, in order. */
  readonly sessions: ServerHttp2Session[];
  readonly requests: IncomingHttpHeaders[];
}

/** Answers requests for `status:<n>` with that status, and leaves all others unanswered. */
async function plainServer(t: ExecutionContext, own: TunnelCredentials): Promise<PlainServer> {
  const sessions: ServerHttp2Session[] = [];
  const requests: IncomingHttpHeaders[] = [];
  const listener = createServer({ pauseOnConnect: true, allowHalfOpen: true }, (raw) => {
    void acceptStaying(raw, tunnelOptions(own)).then(({ socket }) => {
      const session = performServerHandshake(socket);
      sessions.push(session);
      session.on('error', () => undefined);
      session.on('stream', (stream, headers) => {
        requests.push(headers);
        stream.on('error', () => undefined);
        const status = /^status:(\d+)$/.exec(headers[':authority'] ?? '')?.[1];
        if (status !== undefined) stream.respond({ ':status': Number(status) });
      });
    });
  });
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  t.teardown(() => {
    for (const session of sessions) session.destroy();
    listener.close();
  });
  return { port: (listener.address() as AddressInfo).port, sessions, requests };
}

const WINDOWS = { initialWindowSize: 4 * MIB, maxFrameSize: MIB } as const;

export function greetings(test: TestFn, engine: HboneEngine): void {
  // spec: hbone.md §1, spec: hbone.md §8
  test('a client announces its windows, a short header list and no push, and asks by two pseudo headers', async (t) => {
    const { client, server } = await identities();
    const plain = await plainServer(t, server);
    const tunnel = await openTunnel(t, engine, plain.port, tunnelOptions(client));
    const stream = await tunnel.open({ ...request, authority: 'status:200' });
    const [session] = plain.sessions;
    t.like(session?.remoteSettings, {
      ...WINDOWS,
      enablePush: false,
      maxHeaderListSize: 16 * KIB,
    } satisfies Settings);
    await until(() => (session?.state.remoteWindowSize ?? 0) >= 16 * MIB, {
      what: 'the window of the connection',
    });
    const pseudo = Object.keys(plain.requests[0] ?? {}).filter((name) => name.startsWith(':'));
    t.deepEqual(pseudo.toSorted(), [':authority', ':method']);
    t.is(plain.requests[0]?.[':method'], 'CONNECT');
    stream.reset();
  });

  // spec: hbone.md §7
  test('a client takes 200 and no other success', async (t) => {
    const { client, server } = await identities();
    const plain = await plainServer(t, server);
    const tunnel = await openTunnel(t, engine, plain.port, tunnelOptions(client));
    for (const status of [201, 202, 206, 301]) {
      await t.throwsAsync(
        tunnel.open({ ...request, authority: `status:${status}` }),
        { code: 'TUNNEL_REFUSED', message: new RegExp(String(status)) },
        String(status),
      );
    }
    t.true(tunnel.usable);
  });

  // spec: hbone.md §1, spec: hbone.md §8, spec: hbone.md §11
  test('a server announces its windows, 200 streams and no extended CONNECT', async (t) => {
    const { client, server } = await identities();
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), echo);
    const socket = await rawClient(t, fixture.port, client);
    const session = connectHttp2('https://x', { createConnection: () => socket });
    session.on('error', () => undefined);
    t.teardown(() => session.destroy());
    const [settings] = (await once(session, 'remoteSettings')) as [Settings];
    t.like(settings, { ...WINDOWS, maxConcurrentStreams: 200, maxHeaderListSize: 64 * KIB });
    t.not(settings.enableConnectProtocol, true);
    await until(() => (session.state.remoteWindowSize ?? 0) >= 16 * MIB, {
      what: 'the window of the connection',
    });
  });

  // spec: hbone.md §5, spec: hbone.md §6, spec: hbone.md §11
  test('a CONNECT with a path or a scheme costs its stream alone; baggage may come in parts', async (t) => {
    const { client, server } = await identities();
    const baggage: (string | undefined)[] = [];
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), (incoming) => {
      baggage.push(incoming.headers['baggage']);
      return echo(incoming);
    });
    const peer = await rawHttp2(t, fixture.port, client);
    peer.greet();
    const authority = [':authority', 'a:1'] as const;
    const connect = [':method', 'CONNECT'] as const;
    peer.request(1, [connect, authority, [':path', '/']]);
    peer.request(3, [connect, [':scheme', 'https'], authority]);
    const parts = ['k8s.cluster.name=c1', 'service.name=shop'];
    peer.request(5, [connect, authority, ...parts.map((part) => ['baggage', part] as const)]);
    const seen = (type: number, id: number): boolean =>
      peer.frames.some((frame) => frame.type === type && frame.id === id);
    await until(() => seen(3, 1) && seen(3, 3) && seen(1, 5), { what: 'two resets and an answer' });
    t.false(seen(1, 1));
    t.false(seen(1, 3));
    t.is(baggage.length, 1);
    t.like(parseBaggage(baggage[0]), { clusterId: 'c1', canonicalName: 'shop' });
  });

  // spec: dataplane.md §7.1
  test('a server serves its certificate whatever name it is asked for', async (t) => {
    const { client, server } = await identities();
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), echo);
    const socket = connectTls({
      socket: await dial(t, fixture.port),
      secureContext: client.clientContext,
      servername: 'nobody.example',
      ALPNProtocols: ['h2'],
      checkServerIdentity: () => undefined,
    });
    t.teardown(() => socket.destroy());
    socket.on('error', () => undefined);
    await once(socket, 'secureConnect');
    t.regex(socket.getPeerX509Certificate()?.subjectAltName ?? '', /\/ns\/demo\/sa\//);
    await until(() => fixture.tunnels.length === 1, { what: 'the tunnel' });
    const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
    t.is((await roundTrip(await tunnel.open(request), 'x')).toString(), 'x');
  });
}
