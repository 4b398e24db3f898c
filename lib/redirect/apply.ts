/** Writes the redirection of a pod's namespace, and verifies it by reading it back. */
import { MeshError } from '../errors/mesh-error.ts';
import { errnoOf } from '../linux/errno.ts';
import {
  hasLegacyTables,
  nftGeneration,
  policyRouting,
  readSysctl,
  rulesDigest,
} from '../linux/netns.ts';
import { differences, redirects, remains } from './compare.ts';
import { isCut, renderCut } from './cut.ts';
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
  /** The state in which the rules were read and found right. */
  readonly fingerprint: Fingerprint;
}

/** A state of a namespace's packet filter for a later {@link Redirector.unchanged}. */
export interface Fingerprint {
  /** Null where only the digest tells. */
  readonly generation: number | null;
  readonly digest: string;
}

/** The first generation number of a namespace: no rule was ever written to it. */
const UNUSED_GENERATION = 1;
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
   * Makes the own chains and the policy routing exactly as `expected`, from any state. Writes nothing when all is right. Ends a
   * {@link cut} then. Rejects with NETNS_RULES when a command fails or the result differs from `expected`.
   */
  async apply(target: RedirectTarget, expected: readonly FamilyRules[]): Promise<ApplyResult> {
    const families = this.#possible(target, expected);
    const names = families.map((rules) => rules.family);
    // Taken before the rules are read: what changes them afterwards differs from it.
    const found = this.#fingerprint(target);
    const before = await this.#observe(target, names);
    const words = await this.#words(families);
    const repaired = compareAll(target, words, before);
    if (repaired.length === 0) {
      await this.uncut(target);
      return { repaired, fresh: false, redirected: true, fingerprint: found };
    }
    const fresh = before.every((observed) => remains(observed).length === 0);
    const bare = before.every(({ tables }) => tables.length === 0);
    const redirected = allRedirected(target, words, before);
    const script = families.map((rules, index) => {
      const observed = observedAt(before, index);
      const wantRoute = loopbackUsable(target, rules.family);
      return [
        ipBatch(rules.family, renderPolicyAdd(observed, wantRoute)),
        this.#restore(rules, observed),
      ].join('');
    });
    const others = bare ? removeOtherRules(this.#tools.flavour) : '';
    await this.#execute(target, `${script.join('')}${others}`, []);
    const fingerprint = this.#fingerprint(target);
    const left = compareAll(target, words, await this.#execute(target, '', names));
    if (left.length > 0) {
      throw new MeshError(
        'NETNS_RULES',
        `rules are not in force after writing: ${left.join('; ')}`,
      );
    }
    await this.uncut(target);
    return { repaired, fresh, redirected, fingerprint };
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

  /** Returns whether all traffic that is to be redirected is, even if something else is wrong. Rejects as {@link check}. */
  async redirected(target: RedirectTarget, expected: readonly FamilyRules[]): Promise<boolean> {
    const families = this.#possible(target, expected);
    const observed = await this.#observe(
      target,
      families.map((rules) => rules.family),
    );
    return allRedirected(target, await this.#words(families), observed);
  }

  /** Cuts the namespace off until {@link apply}, {@link uncut} or {@link remove}. Rejects with NETNS_RULES when that fails. */
  async cut(target: RedirectTarget): Promise<void> {
    await this.#setCut(target, true);
  }

  /** Ends a cut, if there is one. Rejects with NETNS_RULES when that fails. */
  async uncut(target: RedirectTarget): Promise<void> {
    await this.#setCut(target, false);
  }

  /** Returns whether both families are cut off, by a few netlink requests. */
  isCut(target: RedirectTarget): boolean {
    return usableFamilies(target).every((family) => isCut(routing(target, family)));
  }

  /** Removes the redirection of both families and a cut, from any state. Rejects with NETNS_RULES when some is left. */
  async remove(target: RedirectTarget): Promise<void> {
    await this.uncut(target);
    const families = usableFamilies(target).filter((family) => family === 4 || this.#tools.ipv6);
    const before = await this.#observe(target, families);
    const clean = this.#untouched(target) && !hasLegacyTables(target.netnsFd);
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

  /**
   * Returns whether the namespace certainly has not changed since `fingerprint`, by a few netlink requests and no process.
   * False = check with {@link apply}. `how`: `full` reads all rules, `quick` only the generation where there is one.
   */
  unchanged(
    target: RedirectTarget,
    expected: readonly FamilyRules[],
    fingerprint: Fingerprint,
    how: 'quick' | 'full',
  ): boolean {
    const generation = this.#generation(target);
    if (generation !== fingerprint.generation) return false;
    if ((how === 'full' || generation === null) && this.#digest(target) !== fingerprint.digest) {
      return false;
    }
    return expected.every(({ family }) => routed(target, family));
  }

  #fingerprint(target: RedirectTarget): Fingerprint {
    return { generation: this.#generation(target), digest: this.#digest(target) };
  }

  /** Returns the number of the last change; null for legacy iptables, which counts none. */
  #generation(target: RedirectTarget): number | null {
    return this.#usesNft ? nftGeneration(target.netnsFd) : null;
  }

  #digest(target: RedirectTarget): string {
    return rulesDigest(target.netnsFd, !this.#usesNft);
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
    return this.#generation(target) === UNUSED_GENERATION;
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
    // A trap, because the script ends where a command fails.
    const unlock = this.#usesNft ? '' : `trap 'rm -f "$XTABLES_LOCKFILE"' EXIT\n`;
    const output = await runScript(`set -e\n${unlock}${script}${saves.join('')}`, {
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

  /** Changes the families that are not as wanted. */
  async #setCut(target: RedirectTarget, cut: boolean): Promise<void> {
    const wrong = (): readonly Family[] =>
      usableFamilies(target).filter((family) => isCut(routing(target, family)) !== cut);
    const families = wrong();
    if (families.length === 0) return;
    const script = families.map((family) => ipBatch(family, renderCut(cut)));
    await this.#execute(target, script.join(''), []);
    if (wrong().length > 0) {
      throw new MeshError('NETNS_RULES', `the namespace is ${cut ? 'not' : 'still'} cut off`);
    }
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

function allRedirected(
  target: RedirectTarget,
  expected: readonly FamilyRules[],
  observed: readonly ObservedFamily[],
): boolean {
  return expected.every((rules, index) =>
    redirects(rules, observedAt(observed, index), loopbackUsable(target, rules.family)),
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

function usableFamilies(target: RedirectTarget): readonly Family[] {
  return ([4, 6] as const).filter((family) => familyUsable(target, family));
}

/** Returns whether the policy routing is complete, as far as the family exists here. */
function routed(target: RedirectTarget, family: Family): boolean {
  const complete = (wantRoute: boolean): boolean => {
    const observed = { family, tables: [], policy: routing(target, family) };
    return differences({ family, rules: [] }, observed, wantRoute).length === 0;
  };
  try {
    // Almost always so, and then the settings need not be read.
    if (complete(true)) return true;
  } catch (error) {
    if (familyUsable(target, family)) throw error;
    return true;
  }
  return !loopbackUsable(target, family) && complete(false);
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
