import { callNative } from './native.ts';

/** Settings of a UDP socket. `netnsFd` null = the thread's own namespace. */
export interface ListenUdpOptions {
  readonly netnsFd: number | null;
  /** An IP address; `::` does not accept IPv4. */
  readonly address: string;
  /** 0 = any free one. */
  readonly port: number;
  /** SO_MARK; 0 = none. */
  readonly mark: number;
  readonly reusePort: boolean;
  /** Requested receive buffer, beyond the system's limit where permitted. 0 = the kernel's default. */
  readonly receiveBufferBytes: number;
}

/** A bound socket, non-blocking, close-on-exec; for `dgram.Socket.bind({ fd })`. */
export interface ListenUdpResult {
  readonly fd: number;
  readonly port: number;
}

/**
 * Makes a bound UDP socket inside a network namespace; the calling thread is in its own namespace before and after. The caller
 * owns the descriptor. Throws NATIVE_SYSCALL that names the failed call, with nothing left open.
 */
export function listenUdp(options: ListenUdpOptions): ListenUdpResult {
  return callNative((native) =>
    native.listenUdp(
      options.netnsFd ?? -1,
      options.address,
      options.port,
      options.mark,
      options.reusePort,
      options.receiveBufferBytes,
    ),
  );
}

/**
 * Makes a UDP socket inside a network namespace that is neither bound nor connected; a connect gives it a random port. The
 * caller owns the descriptor. Throws NATIVE_SYSCALL that names the failed call, with nothing left open.
 */
export function openUdp(options: {
  readonly netnsFd: number | null;
  readonly family: 4 | 6;
  readonly mark: number;
}): number {
  return callNative((native) =>
    native.openUdp(options.netnsFd ?? -1, options.family, options.mark),
  );
}
