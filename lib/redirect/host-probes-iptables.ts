/** Scripts for the node's rules for kubelet's probes with ipset and iptables, where the kernel has no nftables. Pure. */
import { programName } from './flavour.ts';
import type { IptablesFlavour } from './flavour.ts';
import { count, ofFamily } from './host-probes.ts';
import type { HostProbeScripts } from './host-probes.ts';
import { LOCK_WAIT_SECONDS } from './limits.ts';
import type { Family } from './rules.ts';

const CHAIN = 'WEFT_POSTRT';
const JUMP = `POSTROUTING -j ${CHAIN}`;
const SETS = { 4: 'weft-probes-v4', 6: 'weft-probes-v6' } as const;
const NETS = { 4: 'inet', 6: 'inet6' } as const;
/** Addresses of the pods of a node; ipset's default. */
const MAX_ELEMENTS = 65_536;
/** All programs that an earlier agent may have used. */
const PROGRAMS = ['iptables', 'ip6tables'].flatMap((base) => [
  `${base}-legacy`,
  `${base}-nft`,
  base,
]);

/** Returns the scripts for the programs of a flavour; without IPv6 only addresses of IPv4 count. */
export function iptablesHostProbes(flavour: IptablesFlavour, ipv6: boolean): HostProbeScripts {
  const families: readonly Family[] = ipv6 ? [4, 6] : [4];
  const save = (family: Family): string => `${programName(flavour, family, 'save')} -t nat`;
  return {
    name: `${CHAIN} (${flavour})`,
    changes: flavour === 'nft' ? 'generation' : 'digest',
    write: (addresses, probeAddress) =>
      families
        .map((family) => {
          const source = family === 4 ? probeAddress.v4 : probeAddress.v6;
          return [
            fillSet(family, ofFamily(addresses, family)),
            // The set exists by now, so that the rule can name it. A table is replaced in one step.
            `{ echo '*nat'; echo ':${CHAIN} - [0:0]'; ${save(family)} | ${deletions(CHAIN)}`,
            `echo '-I ${JUMP}'`,
            `echo '-A ${CHAIN} ${rule(family, source)}'`,
            `echo COMMIT; } | ${programName(flavour, family, 'restore')} --noflush -w ${LOCK_WAIT_SECONDS}`,
            '',
          ].join('\n');
        })
        .join(''),
    list: families
      .map((family) =>
        [
          `ipset -sorted save ${SETS[family]} 2>/dev/null || :`,
          `${save(family)} | sed -n -e '/^-A POSTROUTING /{p;:rest' -e 'n;/${CHAIN}/p;b rest' -e '}' -e '/${CHAIN} /p'`,
          '',
        ].join('\n'),
      )
      .join(''),
    holds: (listed, addresses) =>
      count(listed, `-A ${JUMP}\n`) === families.length &&
      count(listed, ' -j SNAT ') === families.length &&
      count(listed, ' comment "') ===
        families.reduce((sum, family) => sum + ofFamily(addresses, family).length, 0),
    remove: removeChainAndSets(CHAIN, 'weft-probes-v'),
  };
}

/**
 * Returns a script that removes a chain of the table nat, its jumps and the sets whose names begin with `sets`, whichever program
 * wrote them. Sets are destroyed last, so without one there are no rules either.
 */
export function removeChainAndSets(chain: string, sets: string): string {
  return `if command -v ipset >/dev/null && ipset list -n 2>/dev/null | grep -q '^${sets}'; then
  for program in ${PROGRAMS.join(' ')}; do
    command -v $program-save >/dev/null || continue
    $program-save -t nat 2>/dev/null | grep -q '^:${chain} ' || continue
    { echo '*nat'; $program-save -t nat | ${deletions(chain)}; echo '-F ${chain}'; echo '-X ${chain}'; echo COMMIT; } |
      $program-restore --noflush -w ${LOCK_WAIT_SECONDS}
  done
  for name in $(ipset list -n | grep '^${sets}'); do ipset destroy $name; done
fi
`;
}

/** Turns the jumps of a saved table into their deletions. */
function deletions(chain: string): string {
  return `sed -n 's/^-A \\(.* -j ${chain}\\)$/-D \\1/p'`;
}

/** A new set takes the place of the old one in one step. */
function fillSet(family: Family, elements: readonly (readonly [string, string])[]): string {
  const set = SETS[family];
  const create = (name: string): string =>
    `create ${name} hash:ip family ${NETS[family]} maxelem ${MAX_ELEMENTS} comment`;
  return [
    `ipset -exist restore <<'END'`,
    create(set),
    create(`${set}-new`),
    `flush ${set}-new`,
    ...elements.map(([address, uid]) => `add ${set}-new ${address} comment "${uid}"`),
    `swap ${set} ${set}-new`,
    `destroy ${set}-new`,
    'END',
  ].join('\n');
}

function rule(family: Family, source: string): string {
  return `-p tcp -m owner --socket-exists -m set --match-set ${SETS[family]} dst -j SNAT --to-source ${source}`;
}
