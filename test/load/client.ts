/** Makes connections from many pods to many others in one process. */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { openNetns } from '../../lib/linux/netns.ts';
import { openTcp } from '../../lib/linux/sockets.ts';
import { connectTcp } from '../../lib/net/connect-tcp.ts';
import { ASK_BULK, ASK_SMALL, LOAD_PORT, SMALL_BYTES } from './messages.ts';
import type { LoadAnswer, LoadMessage } from './messages.ts';

/** Longer than the mesh's own connect limits, so that the mesh reports a failure first. */
const ANSWER_MS = 20_000;
/** The number of connections opened at once for the held set. */
const OPENING_AT_ONCE = 64;
/** The number of server pods that a client pod calls; each pair has its own tunnels. */
const TARGETS_OF_A_POD = 4;
const CLOSED_UNANSWERED = 'closed before an answer';
/** The interval between starts of new connections. */
const TICK_MS = 5;

let from: readonly number[] = [];
let to: readonly string[] = [];
let next = 0;
const held: Socket[] = [];

/** Connects the next pair in turn: each client pod calls a few server pods, as applications do. */
function dial(): Promise<Socket> {
  const turn = next;
  next += 1;
  const netnsFd = from[turn % from.length] ?? -1;
  const round = Math.floor(turn / from.length) % TARGETS_OF_A_POD;
  const ip = to[((turn % from.length) + round) % to.length] ?? '';
  const fd = openTcp({ netnsFd, family: 4, mark: 0, noDelay: true });
  return connectTcp(fd, { ip, port: LOAD_PORT }, { timeoutMs: ANSWER_MS });
}

/** Requests a small answer and waits until it is complete. */
async function ask(socket: Socket): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const timer = setTimeout(() => reject(new Error('no answer in time')), ANSWER_MS);
  let bytes = 0;
  const onData = (chunk: Buffer): void => {
    bytes += chunk.length;
    if (bytes >= SMALL_BYTES) resolve();
  };
  const onEnd = (): void =>
    reject(new Error(bytes === 0 ? CLOSED_UNANSWERED : `closed after ${bytes} bytes`));
  socket.on('data', onData).on('error', reject).on('end', onEnd).on('close', onEnd);
  // The socket is paused until here, so that no bytes are lost before the listener exists.
  socket.resume().write(ASK_SMALL);
  try {
    await promise;
  } finally {
    clearTimeout(timer);
    socket.off('data', onData).off('error', reject).off('end', onEnd).off('close', onEnd);
    // Otherwise the socket stays half-open and its peer waits for us.
    socket.on('error', () => socket.destroy()).once('end', () => socket.destroy());
  }
}

function answer(fields: Partial<LoadAnswer>): LoadAnswer {
  return { done: 0, failures: [], bytes: 0, latencies: [], lost: 0, ...fields };
}

async function hold(connections: number): Promise<LoadAnswer> {
  const failures: string[] = [];
  let left = connections;
  const open = async (): Promise<void> => {
    while (left > 0) {
      left -= 1;
      try {
        const socket = await dial();
        await ask(socket);
        // Read the socket, or its end stays unseen.
        socket.resume();
        held.push(socket);
      } catch (error) {
        failures.push(errorText(error));
      }
    }
  };
  await Promise.all(Array.from({ length: OPENING_AT_ONCE }, open));
  return answer({ done: held.length, failures });
}

/** Makes connections at a fixed rate. Latency counts from the time a connection was due, so that a slow client shows in it. */
async function rate(perSecond: number, seconds: number): Promise<LoadAnswer> {
  const latencies: number[] = [];
  const failures: string[] = [];
  const running = new Set<Promise<void>>();
  const start = performance.now();
  const one = async (dueMs: number): Promise<void> => {
    let socket: Socket | null = null;
    try {
      socket = await dial();
      await ask(socket);
      latencies.push(performance.now() - start - dueMs);
    } catch (error) {
      failures.push(errorText(error));
    } finally {
      socket?.destroy();
    }
  };
  const total = Math.round(perSecond * seconds);
  for (let begun = 0; begun < total;) {
    const due = Math.min(total, ((performance.now() - start) * perSecond) / 1_000);
    for (; begun < due; begun += 1) {
      const exchange = one((begun * 1_000) / perSecond);
      running.add(exchange);
      void exchange.then(() => running.delete(exchange));
    }
    await wait(TICK_MS);
  }
  await Promise.all(running);
  return answer({ done: latencies.length, failures, latencies });
}

/** A connection that requests endless bytes, and the number received. */
interface Flow {
  readonly socket: Socket;
  /** Resolves when the connection has ended on either side. */
  readonly ended: Promise<void>;
  bytes: number;
}

async function flow(): Promise<Flow> {
  const { promise: ended, resolve } = Promise.withResolvers<void>();
  const socket = await dial();
  const flowing: Flow = { socket, ended, bytes: 0 };
  socket.once('end', resolve).once('close', resolve);
  socket.on('error', () => socket.destroy());
  socket.on('data', (chunk: Buffer) => (flowing.bytes += chunk.length));
  socket.resume().write(ASK_BULK);
  return flowing;
}

async function bulk(connections: number, seconds: number): Promise<LoadAnswer> {
  const dialled = await Promise.allSettled(Array.from({ length: connections }, flow));
  const flows = dialled.filter((one) => one.status === 'fulfilled').map(({ value }) => value);
  await Promise.race([wait(seconds * 1_000), Promise.all(flows.map((one) => one.ended))]);
  const ended = flows.filter(({ socket }) => over(socket));
  // Redirection accepts a connection before the proxy refuses it: only an answer shows that it was carried.
  const refused = ended.filter(({ bytes }) => bytes === 0);
  for (const { socket } of flows) socket.destroy();
  const failures = [
    ...dialled.filter((one) => one.status === 'rejected').map(({ reason }) => errorText(reason)),
    ...refused.map(() => CLOSED_UNANSWERED),
  ];
  return answer({
    done: flows.length - ended.length,
    failures,
    bytes: flows.reduce((total, { bytes }) => total + bytes, 0),
    lost: ended.length - refused.length,
  });
}

/** True when the peer or an error has ended the connection. */
function over(socket: Socket): boolean {
  return socket.destroyed || socket.readableEnded;
}

async function release(): Promise<LoadAnswer> {
  const lost = held.filter(over).length;
  const closed = held.filter((socket) => !socket.closed).map((socket) => once(socket, 'close'));
  for (const socket of held) socket.destroy();
  await Promise.all(closed);
  const done = held.splice(0).length - lost;
  return answer({ done, lost });
}

async function handle(message: LoadMessage): Promise<LoadAnswer> {
  switch (message.type) {
    case 'use':
      from = message.from.map(({ netns }) => openNetns(netns));
      to = message.to.map(({ ip }) => ip);
      return answer({});
    case 'hold':
      return hold(message.connections);
    case 'rate':
      return rate(message.perSecond, message.seconds);
    case 'bulk':
      return bulk(message.connections, message.seconds);
    case 'release':
      return release();
    case 'serve':
      throw new Error('this is a client');
  }
}

process.on('message', (message: LoadMessage) => {
  void handle(message).then((result) => process.send?.(result));
});
