import { present } from '../errors/assert.ts';
import { callNative } from './native.ts';
import type { AcceptedNames, QueuedConnection } from './native.ts';

export type { AcceptedNames, QueuedConnection } from './native.ts';

/** The backlog of ztunnel's listeners (docs/spec/inpod.md §5). */
const DEFAULT_BACKLOG = 128;

/** `auto`: transparent if the kernel permits it; `on`: fail if it does not. */
export type Transparency = 'auto' | 'on' | 'off';

/** Settings of a listener. `netnsFd` null = the thread's own namespace. */
export interface ListenOptions {
  readonly netnsFd: number | null;
  /** An IP address; `::` accepts IPv4 too. */
  readonly address: string;
  /** 0 = any free one. */
  readonly port: number;
  /** SO_MARK, inherited by accepted sockets; 0 = none. */
  readonly mark: number;
  readonly reusePort: boolean;
  readonly transparent: Transparency;
  readonly backlog?: number;
  /** Options that are set before it listens; accepted sockets inherit them. */
  readonly tcp?: TcpOptions;
}

/** A listening socket, non-blocking, close-on-exec; for `server.listen({ fd })`. */
export interface ListenResult {
  readonly fd: number;
  readonly port: number;
  readonly transparent: boolean;
}

/** Keepalive of one socket; times in milliseconds, rounded up to the kernel's seconds. */
export interface KeepaliveOptions {
  readonly timeMs: number;
  readonly intervalMs: number;
  readonly retries: number;
}

/** Options of a TCP socket. Absent ones keep the kernel's default. */
export interface TcpOptions {
  readonly keepalive?: KeepaliveOptions;
  readonly userTimeoutMs?: number;
  readonly noDelay: boolean;
  /** True when the other end is on this machine: the socket does without the congestion control that is meant for networks. */
  readonly local?: boolean;
}

/** Settings of an upstream socket. Set at most one of `source` and `bindLoopback`. */
export interface OpenOptions extends TcpOptions {
  /** Null = the thread's own namespace. */
  readonly netnsFd: number | null;
  readonly family: 4 | 6;
  /** SO_MARK; 0 = none. */
  readonly mark: number;
  /** An address that need not be local: transparent, freebind, port chosen at connect. */
  readonly source?: { readonly ip: string };
  /** A local address to bind to, e.g. `127.0.0.6`; port chosen at connect. */
  readonly bindLoopback?: string;
}

const KERNEL_DEFAULTS: TcpOptions = { noDelay: false };

const TRANSPARENCY: Readonly<Record<Transparency, number>> = { off: 0, auto: 1, on: 2 };

/**
 * Makes a TCP listener inside a network namespace; the calling thread is in its own namespace before and after. The caller owns
 * the descriptor. Throws NATIVE_SYSCALL that names the failed call, with nothing left open.
 */
export function listenTcp(options: ListenOptions): ListenResult {
  const tcp = tcpArguments(options.tcp ?? KERNEL_DEFAULTS);
  return callNative((native) =>
    native.listenTcp(
      options.netnsFd ?? -1,
      options.address,
      options.port,
      options.mark,
      options.reusePort,
      TRANSPARENCY[options.transparent],
      options.backlog ?? DEFAULT_BACKLOG,
      ...tcp,
    ),
  );
}

/**
 * Makes an unconnected TCP socket inside a network namespace, for {@link connectSocket}. The caller owns the descriptor. Throws
 * NATIVE_SYSCALL that names the failed call, with nothing left open.
 */
export function openTcp(options: OpenOptions): number {
  const tcp = tcpArguments(options);
  return callNative((native) =>
    native.openTcp(
      options.netnsFd ?? -1,
      options.family,
      options.mark,
      options.source?.ip ?? null,
      options.bindLoopback ?? null,
      ...tcp,
    ),
  );
}

/** The state of a connect; `reset`: the connection was made and its peer has reset it since. */
export type ConnectState = 'connected' | 'pending' | 'reset';

const CONNECT_STATES: readonly ConnectState[] = ['connected', 'pending', 'reset'];

/**
 * Connects a non-blocking socket. While that is pending, a further call returns its state and sends no second SYN. Throws
 * NATIVE_SYSCALL when the connect has failed; the caller then closes the descriptor.
 */
export function connectSocket(fd: number, ip: string, port: number): ConnectState {
  const state = callNative((native) => native.connectTcp(fd, ip, port));
  return present(CONNECT_STATES[state], 'the addon knows three states');
}

/** A watch of a descriptor. */
export interface Watch {
  /** Ends the watch; call it once. The caller then owns the descriptor again. */
  close(): void;
}

/** Calls `onEvent` when a pending connection may have changed its state. If the thread ends during the watch, the descriptor is closed. */
export function watchConnecting(fd: number, onEvent: () => void): Watch {
  return watch(fd, onEvent, false);
}

/** Calls `onEvent` while connections wait at a listener. If the thread ends during the watch, the descriptor is closed. */
export function watchListening(fd: number, onEvent: () => void): Watch {
  return watch(fd, onEvent, true);
}

function watch(fd: number, onEvent: () => void, readable: boolean): Watch {
  return callNative((native) => {
    const poll = native.pollOpen(fd, onEvent, true);
    native.pollWatch(poll, readable, !readable);
    return { close: () => callNative((module) => module.pollClose(poll)) };
  });
}

/**
 * Accepts at most `most` connections that wait at a non-blocking listener, for {@link RawSocket}. This thread holds the descriptors, which are
 * non-blocking and close-on-exec. Each has its names as {@link acceptedNames} tells them, or the call that failed. Throws NATIVE_SYSCALL
 * when none could be accepted.
 */
export function acceptQueued(
  listenerFd: number,
  redirected: boolean,
  most: number,
): readonly QueuedConnection[] {
  const queued: QueuedConnection[] = [];
  callNative((native) =>
    native.acceptQueued(listenerFd, redirected, most, (fd, failedCall, ...names) => {
      queued.push([fd, failedCall ?? (names.length === 0 ? null : names)]);
    }),
  );
  return queued;
}

/** Holds a connected socket: if the thread ends, the connection is reset. */
export function holdFd(fd: number): void {
  callNative((native) => native.holdFd(fd));
}

/** Ends the hold: the caller owns the descriptor. */
export function releaseFd(fd: number): void {
  callNative((native) => native.releaseFd(fd));
}

/** Closes a descriptor that the thread holds, by a reset (RST). */
export function resetHeld(fd: number): void {
  callNative((native) => native.closeHeld(fd, true));
}

/**
 * Returns both ends of an accepted socket by one call. If the socket was `redirected` and conntrack knows it, the result also has
 * its original destination (SO_ORIGINAL_DST). An IPv4 address of a dual-stack socket is plain IPv4; IPv6 is in the C library's
 * form. Null when the peer is gone. Throws NATIVE_SYSCALL when a call fails otherwise.
 */
export function acceptedNames(fd: number, redirected: boolean): AcceptedNames | null {
  return callNative((native) => native.acceptedNames(fd, redirected));
}

/** Makes the close of this connection a reset (RST), even if data still waits to be sent or read. Throws NATIVE_SYSCALL. */
export function resetOnClose(fd: number): void {
  callNative((native) => native.resetOnClose(fd));
}

function tcpArguments(
  options: TcpOptions,
): [
  noDelay: boolean,
  idle: number,
  interval: number,
  retries: number,
  userTimeoutMs: number,
  local: boolean,
] {
  const { keepalive } = options;
  return [
    options.noDelay,
    keepalive === undefined ? 0 : wholeSeconds(keepalive.timeMs),
    keepalive === undefined ? 0 : wholeSeconds(keepalive.intervalMs),
    keepalive?.retries ?? 0,
    options.userTimeoutMs ?? 0,
    options.local ?? false,
  ];
}

function wholeSeconds(ms: number): number {
  return Math.max(1, Math.ceil(ms / 1_000));
}
