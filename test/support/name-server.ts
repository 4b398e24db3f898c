/** Runs a name server of this process in a network namespace. The test decides its answers. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { ExecutionContext } from 'ava';
import packet from 'dns-packet';
import { TcpFrames, frame } from '../../lib/dns/tcp-frames.ts';
import { closeFd, openNetns } from '../../lib/linux/netns.ts';
import { listenTcp } from '../../lib/linux/sockets.ts';
import { listenUdp } from '../../lib/linux/udp.ts';
import type { TestNetns } from './netns-kit.ts';

/** A question that arrived. */
export interface Asked {
  readonly message: Buffer;
  readonly protocol: 'udp' | 'tcp';
  readonly from: string;
}

/** Returns the answer to a question; null sends none. */
export type Answerer = (asked: Asked) => Buffer | null | Promise<Buffer | null>;

/** A running name server. */
export interface NameServer {
  /** All questions received. */
  readonly asked: Asked[];
  answer: Answerer;
}

/** Answers A with 192.0.2.1 and AAAA with 2001:db8::1, with a TTL of one minute, and other types with no records. */
export function ordinary({ message }: Asked): Buffer {
  const query = packet.decode(message);
  const [question] = query.questions ?? [];
  const name = question?.name ?? '';
  const answers: packet.Answer[] =
    question?.type === 'A'
      ? [{ type: 'A', name, ttl: 60, data: '192.0.2.1' }]
      : question?.type === 'AAAA'
        ? [{ type: 'AAAA', name, ttl: 60, data: '2001:db8::1' }]
        : [];
  return packet.encode({
    type: 'response',
    id: query.id ?? 0,
    flags: packet.AUTHORITATIVE_ANSWER | packet.RECURSION_DESIRED,
    questions: query.questions ?? [],
    answers,
  });
}

/** Serves port 53 of the addresses in the namespace until the test ends. */
export async function startNameServer(
  t: ExecutionContext,
  netns: TestNetns,
  addresses: readonly string[],
): Promise<NameServer> {
  const server: NameServer = { asked: [], answer: ordinary };
  const netnsFd = openNetns(netns.path);
  t.teardown(() => closeFd(netnsFd));
  for (const address of addresses) {
    serveUdp(t, server, netnsFd, address);
    await serveTcp(t, server, netnsFd, address);
  }
  return server;
}

async function reply(server: NameServer, asked: Asked): Promise<Buffer | null> {
  server.asked.push(asked);
  try {
    return await server.answer(asked);
  } catch {
    // Unreadable questions get no answer.
    return null;
  }
}

function serveUdp(t: ExecutionContext, server: NameServer, netnsFd: number, address: string): void {
  const { fd } = listenUdp({
    netnsFd,
    address,
    port: 53,
    mark: 0,
    reusePort: false,
    receiveBufferBytes: 4_194_304,
  });
  const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4');
  let open = true;
  t.teardown(() => {
    open = false;
    socket.close();
  });
  socket.on('message', (message, from) => {
    const asked = { message, protocol: 'udp', from: from.address } as const;
    void reply(server, asked).then((answer) => {
      if (answer !== null && open) socket.send(answer, from.port, from.address);
    });
  });
  socket.bind({ fd });
}

async function serveTcp(
  t: ExecutionContext,
  server: NameServer,
  netnsFd: number,
  address: string,
): Promise<void> {
  const { fd } = listenTcp({
    netnsFd,
    address,
    port: 53,
    mark: 0,
    reusePort: false,
    transparent: 'off',
  });
  const listener = createServer((socket) => {
    const frames = new TcpFrames();
    socket.on('error', () => {});
    t.teardown(() => socket.destroy());
    socket.on('data', (chunk: Buffer) => {
      for (const message of frames.push(chunk)) {
        const from = socket.remoteAddress ?? '';
        void reply(server, { message, protocol: 'tcp', from }).then((answer) => {
          if (answer !== null && !socket.destroyed) socket.write(frame(answer));
        });
      }
    });
  });
  listener.listen({ fd });
  await once(listener, 'listening');
  t.teardown(() => listener.close());
}
