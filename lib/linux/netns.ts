import { statSync } from 'node:fs';
import { errnoOf } from './errno.ts';
import { callNative } from './native.ts';
import type { PolicyRouting } from './native.ts';

/** The directory of the kernel's settings. */
const SYSCTL_DIR = '/proc/sys';

export type { PolicyRouting } from './native.ts';

/** Identifies a network namespace, independently of its path; decimal numbers as text. */
export interface NetnsIdentity {
  readonly inode: string;
  readonly device: string;
}

/**
 * Opens the network namespace of the file at `path` (close-on-exec). The caller closes the descriptor with {@link closeFd}; the
 * namespace lives while it is open. Throws NATIVE_SYSCALL when there is none.
 */
export function openNetns(path: string): number {
  return callNative((native) => native.openNetns(path));
}

/** Returns the identity of an open namespace. Throws NATIVE_SYSCALL for a bad descriptor. */
export function netnsIdentity(fd: number): NetnsIdentity {
  const { inode, device } = callNative((native) => native.netnsIdentity(fd));
  return { inode, device };
}

/** Returns whether any given descriptor is a handle of a network namespace. */
export function isNetns(fd: number): boolean {
  return callNative((native) => native.netnsIdentity(fd)).isNetns;
}

/** Returns whether both identities name the same namespace. */
export function sameNetns(a: NetnsIdentity, b: NetnsIdentity): boolean {
  return a.inode === b.inode && a.device === b.device;
}

/** Returns the namespace of the calling thread. */
export function threadNetns(): NetnsIdentity {
  const { ino, dev } = statSync('/proc/thread-self/ns/net', { bigint: true });
  return { inode: String(ino), device: String(dev) };
}

/** Closes a descriptor that no Node object owns. */
export function closeFd(fd: number): void {
  callNative((native) => native.closeFd(fd));
}

/** Reads a `net.…` sysctl of a namespace by its dotted name, e.g. `net.ipv6.conf.lo.disable_ipv6`, and trims it. */
export function readSysctl(netnsFd: number, name: string): string {
  return callNative((native) => native.readSysctl(netnsFd, sysctlPath(name))).trim();
}

/**
 * Writes a `net.…` sysctl of a namespace, e.g. `net.ipv4.tcp_migrate_req`. `directory` is a mount of `/proc/sys`; its `net` shows
 * the namespace of the thread that opens a file, wherever it is mounted.
 */
export function writeSysctl(
  netnsFd: number,
  name: string,
  value: string,
  directory = SYSCTL_DIR,
): void {
  callNative((native) => native.writeSysctl(netnsFd, sysctlPath(name, directory), value));
}

/** Returns the TCP ports with a listening socket in the namespace, of either address family, ascending. */
export function listeningPorts(netnsFd: number): readonly number[] {
  return [...listenersByPort(netnsFd).keys()];
}

/**
 * Returns whether each TCP port of the namespace has a listening socket that takes IPv4 at any address. It is quicker than
 * {@link listeningPorts}, which looks at the listeners of all namespaces.
 */
export function hasListeners(netnsFd: number, ports: readonly number[]): boolean {
  return callNative((native) => native.hasListeners(netnsFd, ports));
}

/** Counts the listening sockets of each TCP port of the namespace, of either family and any owner, ports ascending. */
export function listenersByPort(netnsFd: number): ReadonlyMap<number, number> {
  const counts = new Map<number, number>();
  for (const port of callNative((native) => native.listeningPorts(netnsFd))) {
    counts.set(port, (counts.get(port) ?? 0) + 1);
  }
  return counts;
}

/**
 * Returns a number that changes with every commit of the namespace's nftables rules, including those of iptables-nft. Null
 * where the kernel has no nftables.
 */
export function nftGeneration(netnsFd: number): number | null {
  return callNative((native) => native.nftGeneration(netnsFd));
}

/**
 * Returns a text that differs when the tables, chains or rules of the namespace's nftables do, and with `legacy` those of legacy
 * iptables too. It reads all of them, without a process.
 */
export function rulesDigest(netnsFd: number, legacy: boolean): string {
  return callNative((native) => native.rulesDigest(netnsFd, legacy));
}

/** Where the kernel lists the tables of legacy iptables that the thread's namespace has. */
const LEGACY_TABLES = ['ip_tables_names', 'ip6_tables_names'].map(
  (name) => `/proc/thread-self/net/${name}`,
);

/** Returns false where no table of legacy iptables was ever used in the namespace, and true where that is not certain. */
export function hasLegacyTables(netnsFd: number): boolean {
  return LEGACY_TABLES.some((path) => {
    try {
      // It reads any file that shows the namespace of the thread which opens it.
      return callNative((native) => native.readSysctl(netnsFd, path)) !== '';
    } catch (error) {
      // The kernel has no legacy iptables.
      return errnoOf(error) !== 'ENOENT';
    }
  });
}

/** Returns the policy routing of one family, with the routes of one table (up to 255). */
export function policyRouting(netnsFd: number, family: 4 | 6, table: number): PolicyRouting {
  return callNative((native) => native.policyRouting(netnsFd, family, table));
}

/** Returns the addresses of the namespace's interfaces of both families, as text. */
export function addressesOf(netnsFd: number): readonly string[] {
  return callNative((native) => native.addresses(netnsFd));
}

function sysctlPath(name: string, directory = SYSCTL_DIR): string {
  return `${directory}/${name.replaceAll('.', '/')}`;
}
