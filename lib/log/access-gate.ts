import { systemClock } from '../clock/clock.ts';
import type { Clock } from '../clock/clock.ts';
import { TokenBucket } from '../async/token-bucket.ts';
import { isSampled, parseAccessRules } from './access-rules.ts';
import type { AccessRules } from './access-rules.ts';
import { ALL_DENIAL_LINES_BURST, ALL_DENIAL_LINES_PER_SECOND } from './limits.ts';

/** The settings of an access log. Plain data. */
export interface AccessSettings {
  /** See lib/log/access-rules.ts. */
  readonly rules: string;
  /** Lines per second and thread for connections that did not fail; 0 = no limit. */
  readonly linesPerSecond: number;
}

/** The reason why a line was not written; `denials`: there were too many early denials. */
export type Suppression = 'filter' | 'sample' | 'rate' | 'denials';

/** Settings that let every line through. */
export const OPEN_ACCESS: AccessSettings = { rules: 'all', linesPerSecond: 0 };

/** Decides which access lines are written, and counts the others. Lines of failed connections do not pass through here, except early denials. */
export class AccessGate {
  /** Counts of lines that were not written. */
  readonly suppressed: Record<Suppression, number> = {
    filter: 0,
    sample: 0,
    rate: 0,
    denials: 0,
  };
  readonly clock: Clock;
  /** Bounds the early denials of all pods. */
  readonly #denials: TokenBucket;
  #rules: AccessRules = { share: 1, namespaces: [] };
  #byNamespace: ReadonlyMap<string, number> = new Map();
  /** Null = no limit. */
  #rate: TokenBucket | null = null;

  /** Throws an Error for rules that cannot be parsed. */
  constructor(settings: AccessSettings = OPEN_ACCESS, clock: Clock = systemClock) {
    this.clock = clock;
    this.#denials = new TokenBucket(clock, {
      burst: ALL_DENIAL_LINES_BURST,
      perSecond: ALL_DENIAL_LINES_PER_SECOND,
    });
    this.change(settings);
  }

  /** Replaces the settings. Throws an Error for rules that cannot be parsed; then nothing changes. */
  change({ rules, linesPerSecond }: AccessSettings): void {
    this.#rules = parseAccessRules(rules);
    this.#byNamespace = new Map(this.#rules.namespaces);
    // The lines of one second may come at once.
    const limits = { burst: linesPerSecond, perSecond: linesPerSecond };
    this.#rate = linesPerSecond === 0 ? null : new TokenBucket(this.clock, limits);
  }

  /** Returns whether the line of a connection that did not fail is written; counts it when not. */
  admits(namespace: string, traceId: string | null): boolean {
    const share = this.#byNamespace.get(namespace) ?? this.#rules.share;
    if (!isSampled(share, traceId)) {
      this.suppressed[share === 0 ? 'filter' : 'sample'] += 1;
      return false;
    }
    if (this.#rate === null || this.#rate.spend()) return true;
    this.suppressed.rate += 1;
    return false;
  }

  /** Returns whether the line of an early denial is written; `ofPod` is the bucket of its pod. Counts it when not. */
  admitsDenial(ofPod: TokenBucket): boolean {
    // The pod's bucket comes first: a pod that is over its limit takes no lines from the others.
    if (ofPod.spend() && this.#denials.spend()) return true;
    this.suppressed.denials += 1;
    return false;
  }
}
