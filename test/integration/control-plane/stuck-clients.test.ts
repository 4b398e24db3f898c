/** Tests clients of a delta server that stop reading: what they cost, and that they are ended. */
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { connect as connectHttp2, constants } from 'node:http2';
import type { ClientHttp2Stream } from 'node:http2';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { envoy } from '#proto/discovery.js';
import { ACK_LIMIT_MS } from '../../../lib/xds/delta-server.ts';
import type { DeltaServer } from '../../../lib/xds/delta-server.ts';
import { MAX_RESPONSE_BYTES } from '../../../lib/xds/shared-answers.ts';
import { ADDRESS_TYPE, DELTA_METHOD } from '../../../lib/xds/type-urls.ts';
import { followDelta } from '../../support/delta-follower.ts';
import { manyResources, serveDelta } from '../../support/delta-server-kit.ts';
import { TEST_NODE_ID, openTestStream } from '../../support/delta-test-client.ts';
import type { DeltaTarget } from '../../support/delta-test-client.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { plainResource } from '../../support/plain-resource.ts';
import { until } from '../../support/until.ts';

/** Clients that stop reading. */
const STUCK = 16;
/** Each is owed thirteen times the bytes of the largest response. */
const OWED = { count: 64, bytes: 100_000 };
/** A window that takes all of it, so that only the socket holds the server back. */
const WINDOW_BYTES = 16 * 1024 * 1024;

/** Carries connections to a port, until it stops to read what the server sends. */
async function startRelay(
  t: ExecutionContext,
  port: number,
): Promise<{ readonly port: number; stop(): void }> {
  const sockets = new Set<Socket>();
  const inbound = new Set<Socket>();
  const relay = createServer((client) => {
    const server = connect(port, '127.0.0.1');
    sockets.add(client).add(server);
    inbound.add(server);
    client.pipe(server);
    server.pipe(client);
    const end = (): void => {
      client.destroy();
      server.destroy();
    };
    for (const socket of [client, server]) socket.on('error', end).on('close', end);
  });
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    relay.close();
  });
  relay.listen(0, '127.0.0.1');
  await once(relay, 'listening');
  return {
    port: (relay.address() as AddressInfo).port,
    stop: () => inbound.forEach((socket) => socket.unpipe().pause()),
  };
}

/** Opens a delta stream with large windows. Its first request is sent by the result. */
async function openWide(
  t: ExecutionContext,
  { rootCa, token }: DeltaTarget,
  port: number,
): Promise<() => void> {
  const session = connectHttp2(`https://127.0.0.1:${port}`, {
    ca: await readFile(rootCa),
    settings: { initialWindowSize: WINDOW_BYTES },
  });
  t.teardown(() => session.destroy());
  session.on('error', () => undefined);
  await once(session, 'remoteSettings');
  session.setLocalWindowSize(WINDOW_BYTES);
  const stream: ClientHttp2Stream = session.request({
    [constants.HTTP2_HEADER_METHOD]: 'POST',
    [constants.HTTP2_HEADER_PATH]: DELTA_METHOD,
    [constants.HTTP2_HEADER_CONTENT_TYPE]: 'application/grpc',
    [constants.HTTP2_HEADER_TE]: 'trailers',
    [constants.HTTP2_HEADER_AUTHORIZATION]: `Bearer ${token}`,
  });
  stream.on('error', () => undefined);
  const { DeltaDiscoveryRequest } = envoy.service.discovery.v3;
  const bytes = DeltaDiscoveryRequest.encode({
    typeUrl: ADDRESS_TYPE,
    node: { id: TEST_NODE_ID },
  }).finish();
  const frame = Buffer.alloc(5 + bytes.length);
  frame.writeUInt32BE(bytes.length, 1);
  frame.set(bytes, 5);
  return () => void stream.write(frame);
}

function outstanding(delta: DeltaServer): number {
  return [...delta.streams()].filter(
    ({ subscriptions }) => subscriptions[ADDRESS_TYPE]?.outstanding === true,
  ).length;
}

/** Bytes of buffers that are in use; the runtime counts what TLS and HTTP/2 keep among them. */
function bufferBytes(): number {
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as () => void)();
  return process.memoryUsage().external;
}

test.serial(
  'sockets that stop reading cost a response each, hold up nobody, and are ended',
  async (t) => {
    const addresses = new Map(manyResources(OWED.count, OWED.bytes));
    const { target, open, delta, metrics } = await serveDelta(
      t,
      new Map([[ADDRESS_TYPE, addresses]]),
      { keepaliveMs: 15_000 },
    );
    const relay = await startRelay(t, Number(new URL(target.address).port));
    const sends = await Promise.all(
      Array.from({ length: STUCK }, () => openWide(t, target, relay.port)),
    );
    const before = bufferBytes();
    relay.stop();
    for (const send of sends) send();
    await until(() => outstanding(delta) === STUCK, { what: 'a response for each' });
    // Changes go on, and are sent to whoever reads.
    const { client, held } = followDelta(t, () => open(target.token ?? ''));
    await until(() => client.live, { what: 'the client that reads' });
    for (let round = 0; round < 10; round += 1) {
      const name = `later-${round}`;
      addresses.set(name, plainResource(name, '1', new Uint8Array(OWED.bytes)));
      await delta.push(new Map([[ADDRESS_TYPE, new Set([name])]]));
    }
    await until(() => held.get(ADDRESS_TYPE)?.size === OWED.count + 10, { what: 'the changes' });
    await until(() => outstanding(delta) === STUCK, { what: 'the last answer of the reader' });
    const most = STUCK * MAX_RESPONSE_BYTES;
    let cost = Infinity;
    // The runtime frees buffers of others in the background; those of the stuck clients stay as long as the clients.
    const costsLittle = async (): Promise<boolean> => {
      const kept = Number(/kept_answers_bytes (\d+)/.exec(await metrics())?.[1]);
      cost = bufferBytes() - before - kept;
      return cost <= most || delta.size <= STUCK;
    };
    await until(costsLittle, { what: 'the cost' });
    t.log(`${Math.round(cost / STUCK / 1024)} KiB for each client`);
    t.true(cost <= most, `${cost} bytes`);
    t.is(delta.size, STUCK + 1);
    await until(() => delta.size === 1, { what: 'the end of those that answer no ping' });
    t.true(client.live);
  },
);

test.serial(
  'a client that answers pings but reads nothing is cut off soon after it is told to end',
  async (t) => {
    const clock = new FakeClock();
    const { target, delta, metrics } = await serveDelta(
      t,
      new Map([[ADDRESS_TYPE, manyResources(OWED.count, OWED.bytes)]]),
      { clock },
    );
    const streams = Array.from({ length: 3 }, () => openTestStream(t, target));
    for (const stream of streams) {
      stream.pause();
      stream.open(ADDRESS_TYPE);
    }
    await until(() => outstanding(delta) === 3, { what: 'a response for each' });
    await clock.advance(ACK_LIMIT_MS + 20_000);
    t.regex(await metrics(), /weft_xds_streams_refused_total\{reason="unacknowledged"\} 3/);
    await clock.advance(20_000);
    await until(() => delta.size === 0, { what: 'the streams to be let go' });
  },
);
