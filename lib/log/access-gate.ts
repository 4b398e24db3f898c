import { systemClock } from '../clock/clock.ts';
import type { Clock } from '../clock/clock.ts';
import { TokenBucket } from '../async/token-bucket.ts';
import { isSampled, parseAccessRules } from './access-rules.ts';
import type { AccessRules } from './access-rules.ts';
import { ALL_DENIAL_LINES_BURST, ALL_DENIAL_LINES_PER_SECOND } from './limits.ts';

/** What an access log lets through. Plain data. */
export interface AccessSettings {
  /** See lib/log/access-rules.ts. */
  readonly rules: string;
  /** Lines a second of connections that did not fail, for one thread; 0 = as many as there are. */
  readonly linesPerSecond: number;
}

/** Why a line was not written; `denials`: there were too many early denials. */
export type Suppression = 'filter' | 'sample' | 'rate' | 'denials';

/** Everything is written. */
export const OPEN_ACCESS: AccessSettings = { rules: 'all', linesPerSecond: 0 };

/** Decides which access lines are written, and counts those that are not. Failures of connections that were understood never come here. */
export class AccessGate {
  /** Lines that were not written. */
  readonly suppressed: Record<Suppression, number> = {
    filter: 0,
    sample: 0,
    rate: 0,
    denials: 0,
  };
  readonly clock: Clock;
  /** Of all pods. */
  readonly #denials: TokenBucket;
  #rules: AccessRules = { share: 1, namespaces: [] };
  #byNamespace: ReadonlyMap<string, number> = new Map();
  /** Null: as many as there are. */
  #rate: TokenBucket | null = null;

  /** Throws an Error for rules that cannot be read. */
  constructor(settings: AccessSettings = OPEN_ACCESS, clock: Clock = systemClock) {
    this.clock = clock;
    this.#denials = new TokenBucket(clock, {
      burst: ALL_DENIAL_LINES_BURST,
      perSecond: ALL_DENIAL_LINES_PER_SECOND,
    });
    this.change(settings);
  }

  /** Takes other settings. Throws an Error for rules that cannot be read; then nothing changes. */
  change({ rules, linesPerSecond }: AccessSettings): void {
    this.#rules = parseAccessRules(rules);
    this.#byNamespace = new Map(this.#rules.namespaces);
    // A second's worth may come at once.
    const limits = { burst: linesPerSecond, perSecond: linesPerSecond };
    this.#rate = linesPerSecond === 0 ? null : new TokenBucket(this.clock, limits);
  }

  /** Whether the line of a connection that did not fail is written; counted when not. */
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

  /** Whether the line of an early denial of the pod whose bucket this is is written; counted when not. */
  admitsDenial(ofPod: TokenBucket): boolean {
    // The pod's first: what it has no line for takes none from the others.
    if (ofPod.spend() && this.#denials.spend()) return true;
    this.suppressed.denials += 1;
    return false;
  }
}
