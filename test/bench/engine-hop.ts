/** Runs one hop of test/bench/engine.ts: `engine-hop.ts ENGINE client|server SETTINGS` prints its listening ports and ends on SIGTERM. */
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { carriedEngine } from '../../lib/hbone/carried/engine.ts';
import { http2Engine } from '../support/engine-http2/engine.ts';
import { acceptStaying, connectStaying } from '../support/staying-tls.ts';
import { TunnelPool } from '../../lib/hbone/pool.ts';
import { bidiCopy } from '../../lib/net/bidi-copy.ts';
import type { CopyEnd } from '../../lib/net/bidi-copy.ts';
import { systemClock } from '../../lib/clock/clock.ts';
import { tunnelOptions } from '../support/tunnel-kit.ts';
import { credentials } from '../support/tunnel-pki.ts';
import type { CredentialSource } from '../../lib/hbone/credentials.ts';
import { streamEnd } from '../../workers/listener/upstream.ts';

const [engineName = '', side = '', text = '{}'] = process.argv.slice(2);
const { keys, tunnel, targets } = JSON.parse(text) as {
  keys: string;
  tunnel: number;
  targets: number[];
};
const sources = JSON.parse(await readFile(keys, 'utf8')) as Record<string, CredentialSource>;
const source = sources[side];
if (source === undefined) throw new Error(`no keys for ${side}`);
const options = tunnelOptions(credentials(source));
const engine = engineName === 'http2' ? http2Engine : carriedEngine;

process.on('SIGTERM', () => process.exit(0));

function socketEnd(socket: Socket): CopyEnd {
  return { duplex: socket, abort: () => socket.destroy() };
}

async function dial(port: number): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true, allowHalfOpen: true });
  socket.pause();
  await once(socket, 'connect');
  return socket;
}

async function listen(serve: (socket: Socket) => void): Promise<number> {
  const listener = createServer(
    { pauseOnConnect: true, allowHalfOpen: true, noDelay: true },
    (socket) => {
      socket.on('error', () => {});
      serve(socket);
    },
  );
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  return (listener.address() as AddressInfo).port;
}

async function server(): Promise<number[]> {
  if (engineName === 'tls') {
    const relay = async (raw: Socket): Promise<void> => {
      const { socket } = await acceptStaying(raw, options);
      // The first two bytes select the destination.
      const [first] = (await once(socket, 'data')) as [Buffer];
      socket.pause();
      const upstream = await dial(first.readUInt16BE());
      if (first.length > 2) upstream.write(first.subarray(2));
      bidiCopy(socketEnd(socket), socketEnd(upstream));
    };
    return [await listen((raw) => void relay(raw).catch(() => raw.destroy()))];
  }
  return [
    await listen((raw) => {
      engine
        .serve(raw, {
          ...options,
          onRequest: async (request) => {
            const upstream = await dial(Number(request.authority.split(':')[1]));
            const stream = request.accept({ baggage: 'k8s.namespace.name=demo' });
            if (stream === null) upstream.destroy();
            else bidiCopy(streamEnd(stream), socketEnd(upstream));
          },
          onRequestError: (error) => process.stderr.write(`${String(error)}\n`),
        })
        .catch(() => raw.destroy());
    }),
  ];
}

async function client(): Promise<number[]> {
  const pool = new TunnelPool(
    { idleReleaseMs: 60_000 },
    {
      clock: systemClock,
      connect: async (key) => engine.connect(await dial(key.destinationPort), options),
    },
  );
  const key = {
    sourceIdentity: 'client',
    expectedIdentities: ['server'],
    destinationIp: '127.0.0.1',
    destinationPort: tunnel,
    sourceIp: '127.0.0.1',
  };
  const headers = {
    baggage: 'k8s.cluster.name=Kubernetes,k8s.namespace.name=demo,k8s.deployment.name=client',
    forwarded: 'for="10.0.0.1:1234"',
    traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00',
  };
  const relay = async (socket: Socket, port: number): Promise<void> => {
    if (engineName === 'tls') {
      const { socket: secured } = await connectStaying(await dial(tunnel), options);
      const target = Buffer.alloc(2);
      target.writeUInt16BE(port);
      secured.write(target);
      bidiCopy(socketEnd(socket), socketEnd(secured));
      return;
    }
    const stream = await pool.open(key, { authority: `127.0.0.1:${port}`, headers });
    bidiCopy(socketEnd(socket), streamEnd(stream));
  };
  const ports: number[] = [];
  for (const port of targets) {
    ports.push(await listen((socket) => void relay(socket, port).catch(() => socket.destroy())));
  }
  return ports;
}

process.stdout.write(`${JSON.stringify(side === 'server' ? await server() : await client())}\n`);
