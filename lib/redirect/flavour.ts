import { errorText, MeshError } from '../errors/mesh-error.ts';
import { LOCK_WAIT_SECONDS } from './limits.ts';
import { KEPT_SOURCE_ZONE } from './rules.ts';
import type { Family } from './rules.ts';
import { runScript } from './run-script.ts';

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

/** What {@link chooseTools} found. */
export interface ChosenTools extends IptablesTools {
  /** Why there are no zones, as the programs said; null when there are. */
  readonly noZones: string | null;
}

/** How programs are tried. */
interface Trial {
  readonly ipv6: boolean;
  readonly lockDir: string;
}

/** The upstream rule: fewer lines than this come from an empty table (docs/spec/cni.md §5.6). */
const RULES_IN_USE_LINES = 3;

/** Name of an iptables program, e.g. `ip6tables-nft-restore`. */
export function programName(flavour: Flavour, family: Family, suffix: 'restore' | 'save'): string {
  const base = family === 4 ? 'iptables' : 'ip6tables';
  return flavour === 'plain' ? `${base}-${suffix}` : `${base}-${flavour}-${suffix}`;
}

/**
 * Chooses the programs once per process: the forced flavour, else legacy where it already holds rules, else nft,
 * else the plain names; each must write a rule in a namespace of its own first, under a lock of its own in `lockDir`, so that
 * nobody who holds the machine's is in the way. NETNS_RULES when none works for IPv4, or for IPv6 when `ipv6` asks for it.
 */
export async function chooseTools(options: {
  readonly ipv6: boolean;
  readonly force: 'legacy' | 'nft' | null;
  readonly lockDir: string;
}): Promise<ChosenTools> {
  const candidates: readonly Flavour[] =
    options.force === null
      ? (await legacyInUse())
        ? ['legacy', 'nft', 'plain']
        : ['nft', 'plain', 'legacy']
      : [options.force];
  const reasons: string[] = [];
  for (const flavour of candidates) {
    const found = { flavour, ipv6: options.ipv6 };
    if ((await failure(flavour, true, options)) === null) {
      return { ...found, zones: true, noZones: null };
    }
    const plain = await failure(flavour, false, options);
    if (plain === null) {
      // Once more: what failed in passing must not take the zones from every pod for as long as this process lives.
      const noZones = await failure(flavour, true, options);
      return { ...found, zones: noZones === null, noZones };
    }
    // Zones are of no interest when the rest fails too.
    reasons.push(`${flavour}: ${plain}`);
  }
  throw new MeshError('NETNS_RULES', `no iptables programs work here: ${reasons.join(' | ')}`);
}

/** Null when the programs of all families work, else why not. */
async function failure(flavour: Flavour, zones: boolean, trial: Trial): Promise<string | null> {
  const v4 = await probe(flavour, 4, zones, trial);
  return v4 === null && trial.ipv6 ? probe(flavour, 6, zones, trial) : v4;
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
-A WEFT_PROBE ${KEPT_SOURCE_ZONE}
COMMIT
`;

/** Null when the programs work, else why not. A new namespace keeps the trial away from everybody. */
async function probe(
  flavour: Flavour,
  family: Family,
  zones: boolean,
  { lockDir }: Trial,
): Promise<string | null> {
  const restore = programName(flavour, family, 'restore');
  const save = programName(flavour, family, 'save');
  const script = `
set -e
trap 'rm -f "$XTABLES_LOCKFILE"' EXIT
command -v ${restore} >/dev/null || { echo '${restore} is not installed' >&2; exit 127; }
${restore} --noflush -w ${LOCK_WAIT_SECONDS} <<'WEFT_END'
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
    await runScript(script, {
      enter: ['unshare', '--net'],
      environment: { XTABLES_LOCKFILE: `${lockDir}/xtables-probe-${process.pid}.lock` },
    });
    return null;
  } catch (error) {
    return errorText(error);
  }
}
