import { systemClock } from '../clock/clock.ts';
import type { Clock } from '../clock/clock.ts';
import { isSampled, parseAccessRules } from './access-rules.ts';
import type { AccessRules } from './access-rules.ts';

/** What an access log lets through. Plain data. */
export interface AccessSettings {
  /** See lib/log/access-rules.ts. */
  readonly rules: string;
  /** Lines a second of connections that did not fail, for one thread; 0 = as many as there are. */
  readonly linesPerSecond: number;
}

/** Why a line was not written. */
export type Suppression = 'filter' | 'sample' | 'rate';

/** Everything is written. */
export const OPEN_ACCESS: AccessSettings = { rules: 'all', linesPerSecond: 0 };

const MS_PER_SECOND = 1_000;

/** Decides which access lines are written, and counts those that are not. Lines of failures never come here. */
export class AccessGate {
  /** Lines that were not written. */
  readonly suppressed: Record<Suppression, number> = { filter: 0, sample: 0, rate: 0 };
  readonly #clock: Clock;
  #rules: AccessRules = { share: 1, namespaces: [] };
  #byNamespace: ReadonlyMap<string, number> = new Map();
  #linesPerSecond = 0;
  #budget = 0;
  #refilledMs = 0;

  /** Throws an Error for rules that cannot be read. */
  constructor(settings: AccessSettings = OPEN_ACCESS, clock: Clock = systemClock) {
    this.#clock = clock;
    this.change(settings);
  }

  /** Takes other settings. Throws an Error for rules that cannot be read; then nothing changes. */
  change({ rules, linesPerSecond }: AccessSettings): void {
    this.#rules = parseAccessRules(rules);
    this.#byNamespace = new Map(this.#rules.namespaces);
    this.#linesPerSecond = linesPerSecond;
    this.#budget = linesPerSecond;
    this.#refilledMs = this.#clock.monotonic();
  }

  /** Whether the line of a connection that did not fail is written; counted when not. */
  admits(namespace: string, traceId: string | null): boolean {
    const share = this.#byNamespace.get(namespace) ?? this.#rules.share;
    if (!isSampled(share, traceId)) {
      this.suppressed[share === 0 ? 'filter' : 'sample'] += 1;
      return false;
    }
    if (this.#linesPerSecond === 0 || this.#spend()) return true;
    this.suppressed.rate += 1;
    return false;
  }

  /** A second's worth may come at once. */
  #spend(): boolean {
    const now = this.#clock.monotonic();
    const earned = ((now - this.#refilledMs) / MS_PER_SECOND) * this.#linesPerSecond;
    this.#budget = Math.min(this.#linesPerSecond, this.#budget + earned);
    this.#refilledMs = now;
    if (this.#budget < 1) return false;
    this.#budget -= 1;
    return true;
  }
}
