/** One question to one name server, from inside a network namespace (docs/spec/dns.md §5). */
import { randomBytes } from 'node:crypto';
import { createSocket } from 'node:dgram';
import type { Socket as UdpSocket } from 'node:dgram';
import type { Socket } from 'node:net';
import { afterInput, systemClock } from '../../../lib/clock/clock.ts';
import { TcpFrames, frame } from '../../../lib/dns/tcp-frames.ts';
import { answers } from '../../../lib/dns/upstream-answer.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { closeFd } from '../../../lib/linux/netns.ts';
import { openTcp } from '../../../lib/linux/sockets.ts';
import { openUdp } from '../../../lib/linux/udp.ts';
import { ipFamily } from '../../../lib/net/address.ts';
import { connectTcp } from '../../../lib/net/connect-tcp.ts';
import type { Attempt } from '../../../lib/net/connect-tcp.ts';
import type { DescriptorGuard } from '../limits/descriptor-guard.ts';
import { FORWARD_CONNECT_MS } from './limits.ts';

const DNS_PORT = 53;

/** How to reach a name server. */
export interface ExchangePath {
  /** Null = the thread's own namespace. */
  readonly netnsFd: number | null;
  readonly mark: number;
  readonly server: string;
  readonly timeoutMs: number;
  /** Makes its socket; may throw a refusal. */
  readonly descriptors: Pick<DescriptorGuard, 'make'>;
  /** Aborts the exchange when the pod ends. */
  readonly signal: AbortSignal;
}

/**
 * Asks over UDP. The id is random and so is the port; what does not answer the question is not looked at. Rejects with
 * UPSTREAM_TIMEOUT, UPSTREAM_CONNECT or NATIVE_SYSCALL.
 */
export async function exchangeUdp(path: ExchangePath, question: Buffer): Promise<Buffer> {
  const { server, timeoutMs, signal } = path;
  const asked = withRandomId(question);
  const socket = openSocket(path);
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  socket.on('message', (message) => {
    if (answers(asked, message)) resolve(message);
  });
  socket.on('error', (error) => reject(failure(server, error)));
  const abort = (): void => reject(failure(server, signal.reason));
  signal.addEventListener('abort', abort, { once: true });
  const timer = afterInput(systemClock, timeoutMs, () => reject(noAnswer(server, timeoutMs)));
  socket.once('connect', () => {
    socket.send(asked, (error) => {
      if (error !== null) reject(failure(server, error));
    });
  });
  socket.connect(DNS_PORT, server);
  try {
    return await promise;
  } finally {
    timer.cancel();
    signal.removeEventListener('abort', abort);
    socket.close();
  }
}

/** Asks over a TCP connection of its own; else as {@link exchangeUdp}. */
export async function exchangeTcp(path: ExchangePath, question: Buffer): Promise<Buffer> {
  const { netnsFd, mark, server, timeoutMs, descriptors, signal } = path;
  const asked = withRandomId(question);
  const family = familyOf(server);
  const fd = descriptors.make(() => openTcp({ netnsFd, family, mark, noDelay: true }));
  let attempt: Attempt | null = null;
  const abort = (): void => {
    attempt?.destroy();
  };
  signal.addEventListener('abort', abort, { once: true });
  try {
    const connected = await connectTcp(
      fd,
      { ip: server, port: DNS_PORT },
      { timeoutMs: FORWARD_CONNECT_MS, onAttempt: (made) => (attempt = made) },
    );
    return await readAnswer(connected, asked, server, timeoutMs);
  } finally {
    signal.removeEventListener('abort', abort);
    abort();
  }
}

function readAnswer(
  socket: Socket,
  asked: Buffer,
  server: string,
  timeoutMs: number,
): Promise<Buffer> {
  const frames = new TcpFrames();
  return new Promise((resolve, reject) => {
    const timer = afterInput(systemClock, timeoutMs, () => reject(noAnswer(server, timeoutMs)));
    socket.once('close', () => {
      timer.cancel();
      reject(failure(server, new Error('the connection was closed')));
    });
    socket.on('end', () => socket.destroy());
    socket.on('data', (chunk: Buffer) => {
      const answer = frames.push(chunk).find((message) => answers(asked, message));
      if (answer === undefined) return;
      timer.cancel();
      resolve(answer);
    });
    socket.resume();
    socket.write(frame(asked));
  });
}

function openSocket({ netnsFd, mark, server, descriptors }: ExchangePath): UdpSocket {
  const family = familyOf(server);
  const fd = descriptors.make(() => openUdp({ netnsFd, family, mark }));
  const socket = createSocket({ type: family === 4 ? 'udp4' : 'udp6', lookup: literal });
  try {
    socket.bind({ fd, exclusive: true });
  } catch (error) {
    closeFd(fd);
    throw failure(server, error);
  }
  return socket;
}

/** Server addresses are never names. */
export function literal(
  address: string,
  _options: unknown,
  done: (error: null, address: string, family: number) => void,
): void {
  done(null, address, familyOf(address));
}

function familyOf(address: string): 4 | 6 {
  return ipFamily(address) ?? 4;
}

function withRandomId(question: Buffer): Buffer {
  const asked = Buffer.from(question);
  randomBytes(2).copy(asked);
  return asked;
}

function noAnswer(server: string, timeoutMs: number): MeshError {
  return new MeshError('UPSTREAM_TIMEOUT', `${server} did not answer within ${timeoutMs} ms`);
}

function failure(server: string, cause: unknown): MeshError {
  const why = `name server ${server}: ${errorText(cause)}`;
  return new MeshError('UPSTREAM_CONNECT', why, { cause });
}
