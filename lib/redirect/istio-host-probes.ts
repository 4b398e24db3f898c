/** Scripts for the node's rules for kubelet's probes that an istio-cni leaves (docs/spec/cni.md §6.2, §6.3). Pure. */
import { removeChainAndSets } from './host-probes-iptables.ts';
import { removeTable } from './host-probes.ts';

const CHAIN = 'ISTIO_POSTRT';
const SETS = 'istio-inpod-probes-v';
const TABLE = 'inet istio-ambient-nat';

/** `list` prints the names of the sets and the table that are there, one a line. `remove` removes them, and the chain with its jump. */
export const istioHostProbes = {
  list: `if command -v ipset >/dev/null; then ipset list -n 2>/dev/null | grep '^${SETS}' || :; fi
if command -v nft >/dev/null; then nft list tables inet 2>/dev/null | grep -x 'table ${TABLE}' || :; fi
`,
  remove: `${removeChainAndSets(CHAIN, SETS)}${removeTable(TABLE)}`,
} as const;
