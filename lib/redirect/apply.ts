/** Writes the redirection of a pod's namespace, and verifies it by reading it back. */
import { existsSync } from 'node:fs';
import { MeshError } from '../errors/mesh-error.ts';
import { errnoOf } from '../linux/errno.ts';
import { nftGeneration, policyRouting, readSysctl } from '../linux/netns.ts';
import { differences, redirects, remains } from './compare.ts';
import { programName } from './flavour.ts';
import type { RedirectTools } from './flavour.ts';
import { LOCK_WAIT_SECONDS } from './limits.ts';
import { NativeWords } from './native-words.ts';
import { nativeList, parseNative, renderNative, renderNativeRemoval } from './native.ts';
import { removeOtherRules } from './other-rules.ts';
import { parseSave } from './observed.ts';
import type { ObservedFamily, ObservedTable } from './observed.ts';
import { renderPolicyAdd, renderPolicyRemove, renderRemove, renderRestore } from './render.ts';
import { POLICY_ROUTE } from './rules.ts';
import type { Family, FamilyRules } from './rules.ts';
import { runScript } from './run-script.ts';

/** A namespace to work on; the caller keeps the descriptor. */
export interface RedirectTarget {
  readonly netnsFd: number;
  /** The inode of the namespace, which names the private xtables lock. */
  readonly inode: string;
}

/** The result of {@link Redirector.apply}. */
export interface ApplyResult {
  /** The earlier faults; empty when nothing had to be written. */
  readonly repaired: readonly string[];
  /** True when there was no redirection before. */
  readonly fresh: boolean;
  /** True when all traffic was redirected as expected before, even if something else was wrong. */
  readonly redirected: boolean;
}

/** A state of a namespace for a later {@link Redirector.unchanged}. */
export type Fingerprint = number | null;

/** The first generation number of a namespace: no rule was ever written to it. */
const UNUSED_GENERATION = 1;
/** Where the kernel lists tables of legacy iptables, once it has any anywhere. */
const LEGACY_TABLES = '/proc/net/ip_tables_names';
const MARKER = '#weft-family';

/** Writes, checks and removes redirection with the programs chosen for this process. */
export class Redirector {
  readonly #tools: RedirectTools;
  readonly #lockDir: string;
  readonly #native = new NativeWords();

  /** `lockDir` holds one lock file per namespace while legacy iptables works on it. */
  constructor(tools: RedirectTools, lockDir: string) {
    this.#tools = tools;
    this.#lockDir = lockDir;
  }

  /**
   * Makes the own chains and the policy routing exactly as `expected`, from any state. Writes nothing when all is right. Rejects
   * with NETNS_RULES when a command fails or the result differs from `expected`.
   */
  async apply(target: RedirectTarget, expected: readonly FamilyRules[]): Promise<ApplyResult> {
    const families = this.#possible(target, expected);
    const before = await this.#observe(
      target,
      families.map((rules) => rules.family),
    );
    const words = await this.#words(families);
    const repaired = compareAll(target, words, before);
    if (repaired.length === 0) return { repaired, fresh: false, redirected: true };
    const fresh = before.every((observed) => remains(observed).length === 0);
    const bare = before.every(({ tables }) => tables.length === 0);
    const redirected = words.every((rules, index) =>
      redirects(rules, observedAt(before, index), loopbackUsable(target, rules.family)),
    );
    const script = families.map((rules, index) => {
      const observed = observedAt(before, index);
      const wantRoute = loopbackUsable(target, rules.family);
      return [
        ipBatch(rules.family, renderPolicyAdd(observed, wantRoute)),
        this.#restore(rules, observed),
      ].join('');
    });
    const after = await this.#execute(
      target,
      `${script.join('')}${bare ? removeOtherRules(this.#tools.flavour) : ''}`,
      families.map((rules) => rules.family),
    );
    const left = compareAll(target, words, after);
    if (left.length > 0) {
      throw new MeshError(
        'NETNS_RULES',
        `rules are not in force after writing: ${left.join('; ')}`,
      );
    }
    return { repaired, fresh, redirected };
  }

  /** Returns the differences from `expected`; empty when all is right. Writes nothing. */
  async check(
    target: RedirectTarget,
    expected: readonly FamilyRules[],
  ): Promise<readonly string[]> {
    const families = this.#possible(target, expected);
    const observed = await this.#observe(
      target,
      families.map((rules) => rules.family),
    );
    return compareAll(target, await this.#words(families), observed);
  }

  /** Removes the redirection of both families, from any state. Rejects with NETNS_RULES when some is left. */
  async remove(target: RedirectTarget): Promise<void> {
    const families = ([4, 6] as const).filter(
      (family) => familyUsable(target, family) && (family === 4 || this.#tools.ipv6),
    );
    const before = await this.#observe(target, families);
    const clean = this.#untouched(target) && !existsSync(LEGACY_TABLES);
    if (clean && before.every((observed) => remains(observed).length === 0)) return;
    const script = before.map((observed) => [
      this.#removal(observed),
      ipBatch(observed.family, renderPolicyRemove(observed)),
    ]);
    const others = removeOtherRules(this.#tools.flavour);
    const after = await this.#execute(target, `${script.flat().join('')}${others}`, families);
    const left = after.flatMap(remains);
    if (left.length > 0) {
      throw new MeshError('NETNS_RULES', `rules are left after removal: ${left.join('; ')}`);
    }
  }

  /** Takes a fingerprint after a successful {@link apply} or {@link check}. Null when the kernel has no cheap sign of changes. */
  fingerprint(target: RedirectTarget): Fingerprint {
    return this.#usesNft ? nftGeneration(target.netnsFd) : null;
  }

  /**
   * Returns whether the namespace certainly has not changed since `fingerprint`, by a few netlink requests and no process.
   * False = check with {@link apply}.
   */
  unchanged(
    target: RedirectTarget,
    expected: readonly FamilyRules[],
    fingerprint: Fingerprint,
  ): boolean {
    if (fingerprint === null || this.fingerprint(target) !== fingerprint) return false;
    return expected
      .filter((rules) => familyUsable(target, rules.family))
      .every(({ family }) => {
        const observed = { family, tables: [], policy: routing(target, family) };
        const empty = { family, rules: [] };
        return differences(empty, observed, loopbackUsable(target, family)).length === 0;
      });
  }

  /** Returns the part of `expected` that this namespace and this kernel support. */
  #possible(target: RedirectTarget, expected: readonly FamilyRules[]): readonly FamilyRules[] {
    const families = expected.filter((rules) => familyUsable(target, rules.family));
    if (this.#tools.zones) return families;
    return families.map((family) => ({
      ...family,
      rules: family.rules.filter((rule) => rule.needs !== 'zones'),
    }));
  }

  /** Returns the rules in the words in which they are read back. */
  async #words(families: readonly FamilyRules[]): Promise<readonly FamilyRules[]> {
    return this.#tools.flavour === 'native' ? this.#native.of(families) : families;
  }

  get #usesNft(): boolean {
    return this.#tools.flavour === 'nft' || this.#tools.flavour === 'native';
  }

  /** Returns whether certainly no rule was ever written to the namespace. */
  #untouched(target: RedirectTarget): boolean {
    return this.fingerprint(target) === UNUSED_GENERATION;
  }

  async #observe(
    target: RedirectTarget,
    families: readonly Family[],
  ): Promise<readonly ObservedFamily[]> {
    if (this.#untouched(target)) {
      return families.map((family) => observedFamily(target, family, []));
    }
    return this.#execute(target, '', families);
  }

  /** Runs `script` in the namespace and reads the result back, in one process group. */
  async #execute(
    target: RedirectTarget,
    script: string,
    families: readonly Family[],
  ): Promise<readonly ObservedFamily[]> {
    const { flavour } = this.#tools;
    const list = (family: Family): string =>
      flavour === 'native' ? nativeList(family) : programName(flavour, family, 'save');
    const saves = families.map((family) => `echo '${MARKER} ${family}'\n${list(family)}\n`);
    // This lock excludes other writers of this namespace only; the machine-wide lock would make all pods wait.
    const lock = `${this.#lockDir}/xtables-${target.inode}.lock`;
    const unlock = this.#usesNft ? '' : `rm -f '${lock}'\n`;
    const output = await runScript(`set -e\n${script}${saves.join('')}${unlock}`, {
      // Entered by descriptor, because the path may name another namespace by now.
      enter: ['nsenter', `--net=/proc/${process.pid}/fd/${target.netnsFd}`],
      ...(this.#usesNft ? {} : { environment: { XTABLES_LOCKFILE: lock } }),
    });
    const sections = output.split(`${MARKER} `).slice(1);
    return families.map((family) => {
      const section = sections.find((text) => text.startsWith(String(family))) ?? '';
      const tables = flavour === 'native' ? parseNative(section) : parseSave(section);
      return observedFamily(target, family, tables);
    });
  }

  #restore(rules: FamilyRules, observed: ObservedFamily): string {
    return this.#write(
      rules.family,
      this.#tools.flavour === 'native'
        ? renderNative(rules, observed.tables)
        : renderRestore(rules, observed),
    );
  }

  #removal(observed: ObservedFamily): string {
    const { family, tables } = observed;
    return this.#write(
      family,
      this.#tools.flavour === 'native'
        ? renderNativeRemoval(family, tables)
        : renderRemove(observed),
    );
  }

  #write(family: Family, text: string): string {
    if (text === '') return '';
    const { flavour } = this.#tools;
    const program =
      flavour === 'native'
        ? 'nft -f -'
        : `${programName(flavour, family, 'restore')} --noflush -w ${LOCK_WAIT_SECONDS}`;
    return `${program} <<'WEFT_END'\n${text}WEFT_END\n`;
  }
}

function ipBatch(family: Family, text: string): string {
  return text === '' ? '' : `ip -${family} -batch - <<'WEFT_END'\n${text}WEFT_END\n`;
}

function compareAll(
  target: RedirectTarget,
  expected: readonly FamilyRules[],
  observed: readonly ObservedFamily[],
): readonly string[] {
  return expected.flatMap((rules, index) =>
    differences(rules, observedAt(observed, index), loopbackUsable(target, rules.family)),
  );
}

function observedAt(observed: readonly ObservedFamily[], index: number): ObservedFamily {
  const found = observed[index];
  if (found === undefined) throw new MeshError('NETNS_RULES', 'rules could not be read back');
  return found;
}

function observedFamily(
  target: RedirectTarget,
  family: Family,
  tables: readonly ObservedTable[],
): ObservedFamily {
  return { family, tables, policy: routing(target, family) };
}

function routing(target: RedirectTarget, family: Family): ObservedFamily['policy'] {
  return policyRouting(target.netnsFd, family, POLICY_ROUTE.table);
}

/** Returns false where the kernel has no IPv6 at all. */
function familyUsable(target: RedirectTarget, family: Family): boolean {
  return family === 4 || disableIpv6(target) !== null;
}

/** Returns false where the pod's loopback has no IPv6, so that there is nothing to route to. */
function loopbackUsable(target: RedirectTarget, family: Family): boolean {
  return family === 4 || disableIpv6(target) === '0';
}

function disableIpv6(target: RedirectTarget): string | null {
  try {
    return readSysctl(target.netnsFd, 'net.ipv6.conf.lo.disable_ipv6');
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return null;
    throw error;
  }
}
