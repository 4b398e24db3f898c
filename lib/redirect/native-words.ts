/** Finds out in which words this machine's nft lists rules, because versions differ. */
import { evictOldest } from '../collections/evict.ts';
import { MeshError } from '../errors/mesh-error.ts';
import { MAX_NATIVE_LISTINGS } from './limits.ts';
import { nativeList, parseNative, renderNative } from './native.ts';
import type { FamilyRules } from './rules.ts';
import { runScript } from './run-script.ts';

/** Writes rules to a new namespace, where they disturb nobody, and reads them back. Keeps the results. */
export class NativeWords {
  readonly #known = new Map<string, FamilyRules>();

  /** Returns the rules as nft lists them, for comparisons. Rejects with NETNS_RULES when they cannot be written. */
  of(expected: readonly FamilyRules[]): Promise<readonly FamilyRules[]> {
    return Promise.all(expected.map((rules) => this.#ofFamily(rules)));
  }

  async #ofFamily(expected: FamilyRules): Promise<FamilyRules> {
    const { family, rules } = expected;
    if (rules.length === 0) return expected;
    const script = renderNative(expected, []);
    const listed = this.#known.get(script) ?? (await listing(expected, script));
    this.#known.delete(script);
    this.#known.set(script, listed);
    evictOldest(this.#known, MAX_NATIVE_LISTINGS);
    return { family, rules: listed.rules };
  }
}

async function listing({ family, rules }: FamilyRules, script: string): Promise<FamilyRules> {
  const text = await runScript(
    `set -e\nnft -f - <<'WEFT_END'\n${script}WEFT_END\n${nativeList(family)}\n`,
    {
      enter: ['unshare', '--net'],
    },
  );
  const tables = parseNative(text);
  const listed = tables.flatMap(({ table, rules: found }) =>
    found.map(({ chain, text: words }) => ({ table, chain, text: words, nft: words })),
  );
  // Each base chain has one line more, its type.
  if (listed.length !== rules.length + 2 * tables.length) {
    throw new MeshError('NETNS_RULES', `nft lists other rules than were written: ${text}`);
  }
  return { family, rules: listed };
}
