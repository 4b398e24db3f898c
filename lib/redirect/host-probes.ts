/** Scripts for the rules of the node's own namespace for kubelet's probes (docs/spec/cni.md §6), with nftables. Pure. */
import { ipFamily } from '../net/address.ts';
import type { RedirectOptions } from './rules.ts';

/** Addresses of enrolled pods, by the uid of their pod. */
export type ProbedAddresses = ReadonlyMap<string, string>;

/**
 * One way to write the rules, as shell scripts that run in the node's namespace. TCP connections of the node's own processes to
 * the addresses come from the probe address, which pods exempt from redirection. Forwarded packets have no socket and do not match.
 */
export interface HostProbeScripts {
  /** The name for people. */
  readonly name: string;
  /** Makes the rules so from any state. No packet meets a part of them. */
  write(addresses: ProbedAddresses, probeAddress: RedirectOptions['probeAddress']): string;
  /**
   * How a change of the namespace's rules shows without a process: as another generation of nftables, or as another digest of all
   * rules. Neither tells of ipsets.
   */
  readonly changes: 'generation' | 'digest';
  /** Prints the rules as they are, always in the same words; nothing where there are none. */
  readonly list: string;
  /** Tells whether this output of {@link list} holds all rules and as many addresses as were written. */
  holds(listed: string, addresses: ProbedAddresses): boolean;
  /** Removes the rules where they are. It loads no module of the kernel for it. */
  readonly remove: string;
}

const TABLE = 'inet weft-host';
/** The order among the chains that change sources: before those of kube-proxy and of the network, which have 100. */
const PRIORITY = 99;

/** Writes the table `inet weft-host` in one transaction. */
export const nftHostProbes: HostProbeScripts = {
  name: TABLE,
  changes: 'generation',
  write: (addresses, probeAddress) =>
    `nft -f - <<'END'\n${transaction(addresses, probeAddress)}END\n`,
  list: `nft list ruleset inet | sed -n '/^table ${TABLE} /,/^}/p'\n`,
  holds: (listed, addresses) =>
    listed.includes('hook postrouting') &&
    count(listed, ' snat ') === 2 &&
    count(listed, ' comment "') === addresses.size,
  remove: removeTable(TABLE),
};

/** Returns a script that removes a table of the family inet where it is. */
export function removeTable(table: string): string {
  return `if nft list tables inet 2>/dev/null | grep -qx 'table ${table}'; then nft delete table ${table}; fi\n`;
}

/** Counts a word. */
export function count(text: string, word: string): number {
  return text.split(word).length - 1;
}

/** Selects the addresses of a family, with the uid of their pod. */
export function ofFamily(
  addresses: ProbedAddresses,
  family: 4 | 6,
): readonly (readonly [string, string])[] {
  return [...addresses].filter(([address]) => ipFamily(address) === family);
}

function transaction(
  addresses: ProbedAddresses,
  probeAddress: RedirectOptions['probeAddress'],
): string {
  const lines = [
    `add table ${TABLE}`,
    `flush table ${TABLE}`,
    `add chain ${TABLE} postrouting { type nat hook postrouting priority ${PRIORITY}; policy accept; }`,
  ];
  for (const { family, type, match, source } of [
    { family: 4, type: 'ipv4_addr', match: 'ip', source: probeAddress.v4 },
    { family: 6, type: 'ipv6_addr', match: 'ip6', source: probeAddress.v6 },
  ] as const) {
    const set = `probes-v${family}`;
    lines.push(
      `add set ${TABLE} ${set} { type ${type}; }`,
      `flush set ${TABLE} ${set}`,
      // Only a process's own packets have a socket, and so a user.
      `add rule ${TABLE} postrouting meta l4proto tcp meta skuid >= 0 ${match} daddr @${set} snat ${match} to ${source}`,
    );
    const elements = ofFamily(addresses, family).map(
      ([address, uid]) => `${address} comment "${uid}"`,
    );
    if (elements.length > 0) lines.push(`add element ${TABLE} ${set} { ${elements.join(', ')} }`);
  }
  return `${lines.join('\n')}\n`;
}
