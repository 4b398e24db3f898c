/** Renders the rules of the node's own namespace for kubelet's probes (docs/spec/cni.md §6). Pure. */
import { ipFamily } from '../net/address.ts';
import type { RedirectOptions } from './rules.ts';

/** The table of the rules. */
export const HOST_TABLE = 'inet weft-host';

/** The order among the chains that change sources: before those of kube-proxy and of the network, which have 100. */
const PRIORITY = 99;

/**
 * Returns the commands of `nft -f` that make the table so, from any state, in one transaction. TCP connections of the node's own
 * processes to these addresses, by the uid of their pod, come from the probe address, which pods exempt from redirection. Only a
 * process's own packets have a socket, and so a user: forwarded packets do not match `meta skuid`.
 */
export function renderHostProbes(
  addresses: ReadonlyMap<string, string>,
  probeAddress: RedirectOptions['probeAddress'],
): string {
  const lines = [
    `add table ${HOST_TABLE}`,
    `flush table ${HOST_TABLE}`,
    `add chain ${HOST_TABLE} postrouting { type nat hook postrouting priority ${PRIORITY}; policy accept; }`,
  ];
  for (const { family, type, match, source } of [
    { family: 4, type: 'ipv4_addr', match: 'ip', source: probeAddress.v4 },
    { family: 6, type: 'ipv6_addr', match: 'ip6', source: probeAddress.v6 },
  ]) {
    const set = `probes-v${family}`;
    lines.push(
      `add set ${HOST_TABLE} ${set} { type ${type}; }`,
      `flush set ${HOST_TABLE} ${set}`,
      `add rule ${HOST_TABLE} postrouting meta l4proto tcp meta skuid >= 0 ${match} daddr @${set} snat ${match} to ${source}`,
    );
    const elements = [...addresses]
      .filter(([address]) => ipFamily(address) === family)
      .map(([address, uid]) => `${address} comment "${uid}"`);
    if (elements.length > 0) {
      lines.push(`add element ${HOST_TABLE} ${set} { ${elements.join(', ')} }`);
    }
  }
  return `${lines.join('\n')}\n`;
}

/** Tells whether this listing of the table holds both rules and as many addresses as were written. Pure. */
export function holdsHostProbes(listed: string, addresses: ReadonlyMap<string, string>): boolean {
  const count = (word: string): number => listed.split(word).length - 1;
  return (
    listed.includes('hook postrouting') &&
    count(' snat ') === 2 &&
    count(' comment "') === addresses.size
  );
}
