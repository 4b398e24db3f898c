import type { Timer } from '../clock/clock.ts';
import { TokenBucket } from '../async/token-bucket.ts';
import type { AccessGate } from './access-gate.ts';
import { FAILED, TARGET } from './access-log.ts';
import type { AccessFields, EarlyDenial } from './access-log.ts';
import { DENIAL_LINES_BURST, DENIAL_LINES_PER_SECOND, LEFT_OUT_LINE_MS } from './limits.ts';
import type { Logger } from './logger.ts';

/** Writes the lines of one pod's early denials, within a bound: a noisy pod hides only its own lines. */
export class DenialLines {
  readonly #podUid: string;
  readonly #log: Logger;
  readonly #gate: AccessGate;
  readonly #bucket: TokenBucket;
  /** Refusals without a line since the last report. */
  #leftOut = 0;
  /** Reports them. */
  #timer: Timer | null = null;

  /** `gate` bounds the lines of all pods that share it. */
  constructor(podUid: string, log: Logger, gate: AccessGate) {
    this.#podUid = podUid;
    this.#log = log;
    this.#gate = gate;
    const limits = { burst: DENIAL_LINES_BURST, perSecond: DENIAL_LINES_PER_SECOND };
    this.#bucket = new TokenBucket(gate.clock, limits);
  }

  /** Writes the line of a refusal and returns its fields. Returns null beyond the bound; the number of such refusals is logged soon. */
  write(denial: EarlyDenial): AccessFields | null {
    if (!this.#gate.admitsDenial(this.#bucket)) {
      this.#leftOut += 1;
      this.#timer ??= this.#gate.clock.after(LEFT_OUT_LINE_MS, () => this.flush());
      return null;
    }
    const fields = {
      scope: TARGET,
      'src.addr': denial.source,
      'dst.addr': denial.destination,
      direction: denial.direction,
      error: denial.error,
    };
    this.#log.warn(fields, FAILED);
    return fields;
  }

  /** Logs now how many lines were left out, if any. */
  flush(): void {
    this.#timer?.cancel();
    this.#timer = null;
    if (this.#leftOut === 0) return;
    const lines = this.#leftOut;
    this.#leftOut = 0;
    this.#log.warn({ podUid: this.#podUid, lines }, 'access.denials-left-out');
  }
}
