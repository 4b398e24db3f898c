import { evictOldest } from '../../lib/collections/evict.ts';
import { podRedirect } from '../../lib/redirect/pod-options.ts';
import type { RedirectDefaults } from '../../lib/redirect/pod-options.ts';
import { redirectRules } from '../../lib/redirect/rules.ts';
import type { FamilyRules } from '../../lib/redirect/rules.ts';
import { MAX_RULE_SETS } from './limits.ts';

/** Makes the rules of pods. Pods whose annotations ask for the same rules share one set, which takes some kilobytes. */
export class RuleSets {
  readonly #defaults: RedirectDefaults;
  /** Sets by their options, the least recently used first. */
  readonly #sets = new Map<string, readonly FamilyRules[]>();

  constructor(defaults: RedirectDefaults) {
    this.#defaults = defaults;
  }

  /** Returns the rules for a pod with these annotations, IPv4 first, and warnings about annotations that are not understood. */
  of(annotations: Readonly<Record<string, string>>): {
    readonly rules: readonly FamilyRules[];
    readonly warnings: readonly string[];
  } {
    const { options, warnings } = podRedirect(annotations, this.#defaults);
    const key = JSON.stringify(options);
    const rules = this.#sets.get(key) ?? redirectRules(options);
    this.#sets.delete(key);
    this.#sets.set(key, rules);
    evictOldest(this.#sets, MAX_RULE_SETS);
    return { rules, warnings };
  }
}
