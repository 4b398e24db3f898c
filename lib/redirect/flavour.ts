import { errorText, MeshError } from '../errors/mesh-error.ts';
import { LOCK_WAIT_SECONDS } from './limits.ts';
import { KEPT_SOURCE_ZONE } from './rules.ts';
import type { Family } from './rules.ts';
import { runScript } from './run-script.ts';

/** The kernel interface that iptables programs use; `plain` = that of the names without suffix. */
export type IptablesFlavour = 'nft' | 'legacy' | 'plain';

/** The way to the kernel's packet filter: iptables programs, or `native` = tables of nftables. */
export type Flavour = IptablesFlavour | 'native';

/** Programs of one flavour that work here. */
export interface RedirectTools {
  readonly flavour: Flavour;
  /** False when the IPv6 programs do not work, which is allowed only when IPv6 is off. */
  readonly ipv6: boolean;
  /** False where one of the families has no conntrack zones; rules that need them are left out. */
  readonly zones: boolean;
}

/** The result of {@link chooseTools}. */
export interface ChosenTools extends RedirectTools {
  /** The programs' reason why there are no zones; null when there are. */
  readonly noZones: string | null;
}

/** Settings of the trial. */
interface Trial {
  readonly ipv6: boolean;
  readonly lockDir: string;
}

/** An empty table has fewer lines than this: upstream's rule (docs/spec/cni.md §5.6). */
const RULES_IN_USE_LINES = 3;

/** Returns the name of an iptables program, e.g. `ip6tables-nft-restore`. */
export function programName(
  flavour: IptablesFlavour,
  family: Family,
  suffix: 'restore' | 'save',
): string {
  const base = family === 4 ? 'iptables' : 'ip6tables';
  return flavour === 'plain' ? `${base}-${suffix}` : `${base}-${flavour}-${suffix}`;
}

/**
 * Chooses the programs, once per process: the forced flavour, else legacy where it already holds rules, else nft, else the plain
 * names. Each must first write a rule in a new namespace, under a lock in `lockDir`, so that a holder of the machine's lock does
 * not disturb the trial. Rejects with NETNS_RULES when none works for IPv4, or for IPv6 when `ipv6` asks for it.
 */
export async function chooseTools(options: {
  readonly ipv6: boolean;
  readonly force: 'legacy' | 'nft' | null;
  readonly lockDir: string;
}): Promise<ChosenTools> {
  const candidates: readonly IptablesFlavour[] =
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
      // Once more, because a passing failure must not take the zones from every pod for the life of this process.
      const noZones = await failure(flavour, true, options);
      return { ...found, zones: noZones === null, noZones };
    }
    // Zones do not matter when the rest fails too.
    reasons.push(`${flavour}: ${plain}`);
  }
  throw new MeshError('NETNS_RULES', `no iptables programs work here: ${reasons.join(' | ')}`);
}

/** Tries the programs of all families. Returns null when they work, else the reason. */
async function failure(
  flavour: IptablesFlavour,
  zones: boolean,
  trial: Trial,
): Promise<string | null> {
  const v4 = await probe(flavour, 4, zones, trial);
  return v4 === null && trial.ipv6 ? probe(flavour, 6, zones, trial) : v4;
}

async function legacyInUse(): Promise<boolean> {
  // Reading the kernel's file creates no table, unlike the save program.
  const script = `
    lines=0
    for save in iptables-legacy-save ip6tables-legacy-save; do
      command -v "$save" >/dev/null 2>&1 || continue
      names=/proc/net/ip_tables_names
      [ "$save" = ip6tables-legacy-save ] && names=/proc/net/ip6_tables_names
      [ -n "$(cat "$names" 2>/dev/null)" ] || continue
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

/** Tries programs in a new namespace, where they disturb nobody. Returns null when they work, else the reason. */
async function probe(
  flavour: IptablesFlavour,
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
