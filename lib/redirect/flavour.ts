import { errorText, MeshError } from '../errors/mesh-error.ts';
import { runScript } from './run-script.ts';
import type { Family } from './rules.ts';

/** Which kernel interface the iptables programs use; `plain` = whatever the unsuffixed names are. */
export type Flavour = 'nft' | 'legacy' | 'plain';

/** Programs of one flavour that were seen to work here. */
export interface IptablesTools {
  readonly flavour: Flavour;
  /** False when the IPv6 programs do not work; only acceptable when IPv6 is off. */
  readonly ipv6: boolean;
  /** False where conntrack zones cannot be asked for, in one of the families: rules that need them are left out. */
  readonly zones: boolean;
}

/** The upstream rule: fewer lines than this come from an empty table (spec/cni.md §5.6). */
const RULES_IN_USE_LINES = 3;

/** Name of an iptables program, e.g. `ip6tables-nft-restore`. */
export function programName(flavour: Flavour, family: Family, suffix: 'restore' | 'save'): string {
  const base = family === 4 ? 'iptables' : 'ip6tables';
  return flavour === 'plain' ? `${base}-${suffix}` : `${base}-${flavour}-${suffix}`;
}

/**
 * Chooses the programs once per process: the forced flavour, else legacy where it already holds rules, else nft,
 * else the plain names; each must write and remove a rule in a namespace of its own first. NETNS_RULES when none
 * works for IPv4, or for IPv6 when `ipv6` asks for it.
 */
export async function chooseTools(options: {
  readonly ipv6: boolean;
  readonly force: 'legacy' | 'nft' | null;
}): Promise<IptablesTools> {
  const candidates: readonly Flavour[] =
    options.force === null
      ? (await legacyInUse())
        ? ['legacy', 'nft', 'plain']
        : ['nft', 'plain', 'legacy']
      : [options.force];
  const reasons: string[] = [];
  for (const flavour of candidates) {
    for (const zones of [true, false]) {
      const v4 = await probe(flavour, 4, zones);
      const v6 = options.ipv6 && v4 === null ? await probe(flavour, 6, zones) : null;
      if (v4 === null && v6 === null) return { flavour, ipv6: options.ipv6, zones };
      // What is not needed is of no interest when the rest fails too.
      if (!zones) reasons.push(`${flavour}: ${v4 ?? v6 ?? ''}`);
    }
  }
  throw new MeshError('NETNS_RULES', `no iptables programs work here: ${reasons.join(' | ')}`);
}

async function legacyInUse(): Promise<boolean> {
  // Listing by the kernel's own file makes no table, unlike the save program.
  const script = `
    lines=0
    for save in iptables-legacy-save ip6tables-legacy-save; do
      command -v "$save" >/dev/null 2>&1 || continue
      names=/proc/net/ip_tables_names
      [ "$save" = ip6tables-legacy-save ] && names=/proc/net/ip6_tables_names
      [ -s "$names" ] || continue
      count=$("$save" 2>/dev/null | grep -c '^-A' || true)
      lines=$((lines + count))
    done
    echo "$lines"`;
  return Number(await runScript(script, { enter: [] })) >= RULES_IN_USE_LINES;
}

const ZONE_PROBE = `*raw
:WEFT_PROBE - [0:0]
-A WEFT_PROBE -p tcp -m mark --mark 0x1539/0x1fff -j CT --zone-orig 2
COMMIT
`;

/** Null when the programs work, else why not. A new namespace keeps the trial away from everybody. */
async function probe(flavour: Flavour, family: Family, zones: boolean): Promise<string | null> {
  const restore = programName(flavour, family, 'restore');
  const save = programName(flavour, family, 'save');
  const script = `
set -e
command -v ${restore} >/dev/null || { echo '${restore} is not installed' >&2; exit 127; }
${restore} --noflush <<'WEFT_END'
${zones ? ZONE_PROBE : ''}*mangle
:WEFT_PROBE - [0:0]
-A WEFT_PROBE -m mark --mark 0x539/0xfff -j CONNMARK --set-xmark 0x111/0xfff
COMMIT
*nat
:WEFT_PROBE - [0:0]
-A WEFT_PROBE -p tcp -m mark ! --mark 0x539/0xfff -j REDIRECT --to-ports 15001
COMMIT
WEFT_END
${save} | grep -q -- '-j REDIRECT --to-ports 15001'
`;
  try {
    await runScript(script, { enter: ['unshare', '--net'] });
    return null;
  } catch (error) {
    return errorText(error);
  }
}
