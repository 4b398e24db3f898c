import type { Socket } from 'node:net';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import { errnoOf } from '../linux/errno.ts';
import { closeFd } from '../linux/netns.ts';
import { connectSocket, watchConnecting } from '../linux/sockets.ts';
import type { ConnectState, Watch } from '../linux/sockets.ts';
import { RawSocket } from './raw-socket.ts';
import { formatEndpoint } from './socket.ts';
import type { Endpoint } from './socket.ts';

/** A connection, made or being made, that the caller may give up. */
export interface Attempt {
  /** Resets it at once; has no effect when it is closed. */
  destroy(): void;
}

/** Options of {@link connectTcp}. */
export interface ConnectOptions {
  readonly timeoutMs: number;
  /** Called once with the attempt, which the caller may destroy before or after it is connected. */
  readonly onAttempt?: (attempt: Attempt) => void;
}

/** Connects as {@link connectRaw} does, for somebody who reads and writes by Node. The socket is half-open and paused. */
export async function connectTcp(
  fd: number,
  to: Endpoint,
  options: ConnectOptions,
): Promise<Socket> {
  return (await connectRaw(fd, to, options)).adopt();
}

/**
 * Connects a socket descriptor and takes ownership of it. The socket is already gone if the peer accepted the connection and reset it at
 * once. Without a connection it closes the descriptor, and throws or rejects with UPSTREAM_TIMEOUT or UPSTREAM_CONNECT.
 */
export function connectRaw(
  fd: number,
  to: Endpoint,
  options: ConnectOptions,
): RawSocket | Promise<RawSocket> {
  let state: ConnectState;
  try {
    state = ask(fd, to);
  } catch (error) {
    closeFd(fd);
    throw error;
  }
  if (state === 'pending') return whenAnswered(fd, to, options);
  const socket = adopt(fd, state);
  options.onAttempt?.({ destroy: () => socket.reset() });
  return socket;
}

/** Waits until the peer of a pending connection has answered. */
function whenAnswered(fd: number, to: Endpoint, options: ConnectOptions): Promise<RawSocket> {
  const { timeoutMs, onAttempt } = options;
  const { promise, resolve, reject } = Promise.withResolvers<RawSocket>();
  let socket: RawSocket | null = null;
  let waiting = true;
  const end = (): void => {
    waiting = false;
    clearTimeout(timer);
    watch.close();
  };
  const fail = (error: unknown): void => {
    if (!waiting) return;
    end();
    closeFd(fd);
    reject(error);
  };
  const look = (): void => {
    if (!waiting) return;
    try {
      const state = ask(fd, to);
      if (state === 'pending') return;
      end();
      socket = adopt(fd, state);
      resolve(socket);
    } catch (error) {
      if (waiting) fail(error);
      else reject(error);
    }
  };
  const watch = watchOrClose(fd, look);
  const timer = setTimeout(() => {
    // The peer may have answered while this thread was busy.
    look();
    const why = `${formatEndpoint(to)} did not accept the connection within ${timeoutMs} ms`;
    fail(new MeshError('UPSTREAM_TIMEOUT', why));
  }, timeoutMs);
  onAttempt?.({
    destroy: () => {
      fail(connectError(to, new Error('the connection was given up')));
      socket?.reset();
    },
  });
  return promise;
}

/** Starts to connect, or asks for the state of the attempt. Throws UPSTREAM_CONNECT when it has failed. */
function ask(fd: number, to: Endpoint): ConnectState {
  try {
    return connectSocket(fd, to.ip, to.port);
  } catch (error) {
    const errno = errnoOf(error);
    throw connectError(to, errno === null ? error : systemError(errno, to));
  }
}

function watchOrClose(fd: number, look: () => void): Watch {
  try {
    return watchConnecting(fd, look);
  } catch (error) {
    closeFd(fd);
    throw error;
  }
}

function adopt(fd: number, state: ConnectState): RawSocket {
  const socket = RawSocket.of(fd);
  if (state === 'reset') socket.reset();
  return socket;
}

/** The error that Node itself would make. */
function systemError(code: string, { ip, port }: Endpoint): Error {
  const error = new Error(`connect ${code} ${ip}:${port}`);
  return Object.assign(error, { code, syscall: 'connect', address: ip, port });
}

function connectError(to: Endpoint, cause: unknown): MeshError {
  const text = `cannot connect to ${formatEndpoint(to)}: ${errorText(cause)}`;
  return new MeshError('UPSTREAM_CONNECT', text, { cause });
}
