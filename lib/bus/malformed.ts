import type { Logger } from '../log/logger.ts';
import { MALFORMED_LOG_LINES_MAX } from './limits.ts';
import type { BusMetrics } from './metrics.ts';

const SAMPLED_LOG_EACH = 100;

/** Counts the unreadable rows and log entries of one table, and logs them without flooding the log. */
export class MalformedReport {
  readonly #table: string;
  readonly #log: Logger;
  readonly #metrics: BusMetrics;
  #count = 0;

  constructor(table: string, log: Logger, metrics: BusMetrics) {
    this.#table = table;
    this.#log = log;
    this.#metrics = metrics;
  }

  /** `key` names the row or the log entry. */
  report(key: string, reason: string): void {
    this.#count += 1;
    this.#metrics.malformed.inc({ table: this.#table });
    if (this.#count > MALFORMED_LOG_LINES_MAX && this.#count % SAMPLED_LOG_EACH !== 0) return;
    this.#log.error(
      { table: this.#table, key: key.slice(0, 256), reason, count: this.#count },
      'bus.malformed',
    );
  }
}
