import { statSync } from 'node:fs';
import { callNative } from './native.ts';
import type { PolicyRouting } from './native.ts';

/** Where the kernel's settings are. */
const SYSCTL_DIR = '/proc/sys';

export type { PolicyRouting } from './native.ts';

/** What tells two network namespaces apart, whatever path they were opened by; decimal numbers as text. */
export interface NetnsIdentity {
  readonly inode: string;
  readonly device: string;
}

/**
 * Opens the network namespace that the file at `path` holds (close-on-exec). The caller closes the descriptor
 * with {@link closeFd}; while it is open the namespace lives. NATIVE_SYSCALL when there is none.
 */
export function openNetns(path: string): number {
  return callNative((native) => native.openNetns(path));
}

/** The identity of an open namespace. NATIVE_SYSCALL for a bad descriptor. */
export function netnsIdentity(fd: number): NetnsIdentity {
  const { inode, device } = callNative((native) => native.netnsIdentity(fd));
  return { inode, device };
}

/** Whether the descriptor, wherever it came from, is a handle of a network namespace. */
export function isNetns(fd: number): boolean {
  return callNative((native) => native.netnsIdentity(fd)).isNetns;
}

/** Whether both identities name the same namespace. */
export function sameNetns(a: NetnsIdentity, b: NetnsIdentity): boolean {
  return a.inode === b.inode && a.device === b.device;
}

/** The namespace the calling thread is in. */
export function threadNetns(): NetnsIdentity {
  const { ino, dev } = statSync('/proc/thread-self/ns/net', { bigint: true });
  return { inode: String(ino), device: String(dev) };
}

/** Closes a descriptor that no Node object owns. */
export function closeFd(fd: number): void {
  callNative((native) => native.closeFd(fd));
}

/** Reads `net.…` sysctls of a namespace by dotted name, e.g. `net.ipv6.conf.lo.disable_ipv6`; trimmed. */
export function readSysctl(netnsFd: number, name: string): string {
  return callNative((native) => native.readSysctl(netnsFd, sysctlPath(name))).trim();
}

/**
 * Writes a `net.…` sysctl of a namespace, e.g. `net.ipv4.tcp_migrate_req`. `directory` is where `/proc/sys` is: whose
 * namespace its `net` speaks of is decided by who opens it, wherever it is mounted.
 */
export function writeSysctl(
  netnsFd: number,
  name: string,
  value: string,
  directory = SYSCTL_DIR,
): void {
  callNative((native) => native.writeSysctl(netnsFd, sysctlPath(name, directory), value));
}

/** The TCP ports on which a socket listens in the namespace, of either address family, ascending. */
export function listeningPorts(netnsFd: number): readonly number[] {
  return [...listenersByPort(netnsFd).keys()];
}

/** How many sockets listen on each TCP port of the namespace, of either family and whosever they are, ports ascending. */
export function listenersByPort(netnsFd: number): ReadonlyMap<number, number> {
  const counts = new Map<number, number>();
  for (const port of callNative((native) => native.listeningPorts(netnsFd))) {
    counts.set(port, (counts.get(port) ?? 0) + 1);
  }
  return counts;
}

/**
 * A number that every committed change of the namespace's nftables rules changes, those of iptables-nft
 * included. Null where the kernel has no nftables.
 */
export function nftGeneration(netnsFd: number): number | null {
  return callNative((native) => native.nftGeneration(netnsFd));
}

/** The policy routing of one family, with the routes of one table (up to 255). */
export function policyRouting(netnsFd: number, family: 4 | 6, table: number): PolicyRouting {
  return callNative((native) => native.policyRouting(netnsFd, family, table));
}

function sysctlPath(name: string, directory = SYSCTL_DIR): string {
  return `${directory}/${name.replaceAll('.', '/')}`;
}
