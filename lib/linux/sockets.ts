import { present } from '../errors/assert.ts';
import { callNative } from './native.ts';
import type { AcceptedNames } from './native.ts';

export type { AcceptedNames } from './native.ts';

/** The kernel default of ztunnel's listeners (docs/spec/inpod.md §5). */
const DEFAULT_BACKLOG = 128;

/** `auto`: as far as the kernel lets us; `on`: fail where it does not. */
export type Transparency = 'auto' | 'on' | 'off';

/** A listener to make. `netnsFd` null = the thread's own namespace. */
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
  /** Set before it listens; every accepted socket inherits them. */
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

/** Options that may be set on any TCP socket. Absent ones stay as the kernel has them. */
export interface TcpOptions {
  readonly keepalive?: KeepaliveOptions;
  readonly userTimeoutMs?: number;
  readonly noDelay: boolean;
}

/** An upstream socket to make. At most one of `source` and `bindLoopback`. */
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
 * Makes a TCP listener inside a network namespace; the calling thread is in its own one before and after.
 * The caller owns the descriptor. NATIVE_SYSCALL names the failed call; nothing is left open then.
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
 * Accepts one connection that waits at a non-blocking listener; null when none does. The caller owns the descriptor,
 * which is non-blocking and close-on-exec. NATIVE_SYSCALL when accepting fails.
 */
export function acceptQueued(listenerFd: number): number | null {
  return callNative((native) => native.acceptQueued(listenerFd));
}

/**
 * Makes an unconnected TCP socket inside a network namespace, for {@link connectSocket}.
 * The caller owns the descriptor. NATIVE_SYSCALL names the failed call; nothing is left open then.
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

/** How connecting stands; `reset`: the connection was made, and its peer has reset it since. */
export type ConnectState = 'connected' | 'pending' | 'reset';

const CONNECT_STATES: readonly ConnectState[] = ['connected', 'pending', 'reset'];

/**
 * Connects a non-blocking socket, or, while that is pending, tells how it stands; there is never a second SYN. NATIVE_SYSCALL
 * when it has failed; then there is nothing to be done with the descriptor but to close it, which is up to the caller.
 */
export function connectSocket(fd: number, ip: string, port: number): ConnectState {
  const state = callNative((native) => native.connectTcp(fd, ip, port));
  return present(CONNECT_STATES[state], 'the addon knows three states');
}

/** Calls `onEvent` while a pending connection may have come to an end, until closed. */
export interface ConnectWatch {
  /** To be called once. The descriptor is the caller's again. */
  close(): void;
}

/** Watches a pending connection; should the thread end before the watch does, the descriptor ends with it. */
export function watchConnecting(fd: number, onEvent: () => void): ConnectWatch {
  return callNative((native) => {
    const poll = native.pollOpen(fd, onEvent, true);
    native.pollWatch(poll, false, true);
    return { close: () => callNative((module) => module.pollClose(poll)) };
  });
}

/**
 * Both ends of an accepted socket by one call, and where it was going before it was `redirected`, by SO_ORIGINAL_DST; shorter
 * where nobody asked for that or conntrack does not know the connection. IPv4 of a dual-stack socket comes as plain IPv4, IPv6 as
 * the C library writes it. Null when the peer is gone; NATIVE_SYSCALL names a call that failed otherwise.
 */
export function acceptedNames(fd: number, redirected: boolean): AcceptedNames | null {
  return callNative((native) => native.acceptedNames(fd, redirected));
}

/** Whether this process may mark sockets (CAP_NET_ADMIN or CAP_NET_RAW). */
export function canMark(mark: number): boolean {
  return callNative((native) => native.canMark(mark));
}

/** The close of this connection will be a reset (RST), whatever still waits to be sent or read. NATIVE_SYSCALL. */
export function resetOnClose(fd: number): void {
  callNative((native) => native.resetOnClose(fd));
}

function tcpArguments(
  options: TcpOptions,
): [noDelay: boolean, idle: number, interval: number, retries: number, userTimeoutMs: number] {
  const { keepalive } = options;
  return [
    options.noDelay,
    keepalive === undefined ? 0 : wholeSeconds(keepalive.timeMs),
    keepalive === undefined ? 0 : wholeSeconds(keepalive.intervalMs),
    keepalive?.retries ?? 0,
    options.userTimeoutMs ?? 0,
  ];
}

function wholeSeconds(ms: number): number {
  return Math.max(1, Math.ceil(ms / 1_000));
}
