import { podRedirect } from '../../lib/redirect/pod-options.ts';
import type { RedirectDefaults } from '../../lib/redirect/pod-options.ts';
import { redirectRules } from '../../lib/redirect/rules.ts';
import type { FamilyRules } from '../../lib/redirect/rules.ts';
import { MAX_RULE_SETS } from './limits.ts';

/** The rules that a pod is to have. Pods whose annotations ask for the same share one set, which takes some kilobytes. */
export class RuleSets {
  readonly #defaults: RedirectDefaults;
  /** By what they were made from; those asked for longest ago go first when there are too many. */
  readonly #sets = new Map<string, readonly FamilyRules[]>();

  constructor(defaults: RedirectDefaults) {
    this.#defaults = defaults;
  }

  /** The rules for a pod with these annotations, IPv4 first, and what in the annotations was not understood. */
  of(annotations: Readonly<Record<string, string>>): {
    readonly rules: readonly FamilyRules[];
    readonly warnings: readonly string[];
  } {
    const { options, warnings } = podRedirect(annotations, this.#defaults);
    const key = JSON.stringify(options);
    const rules = this.#sets.get(key) ?? redirectRules(options);
    this.#sets.delete(key);
    this.#sets.set(key, rules);
    for (const oldest of this.#sets.keys()) {
      if (this.#sets.size <= MAX_RULE_SETS) break;
      this.#sets.delete(oldest);
    }
    return { rules, warnings };
  }
}
