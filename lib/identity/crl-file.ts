import { hash } from 'node:crypto';
import type { Clock } from '../clock/clock.ts';
import { errorText } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';
import { MAX_CRL_BYTES, parseRevocationLists } from './crl.ts';
import type { RevocationLists } from './crl.ts';
import { readBounded } from '../files/bounded-file.ts';
import { FollowedFile } from '../files/followed-file.ts';
import { FreshReading } from '../files/fresh-reading.ts';

/** Collaborators of a {@link CrlFile}. */
export interface CrlFileDeps {
  readonly clock: Clock;
  readonly log: Pick<Logger, 'debug' | 'info' | 'warn' | 'error'>;
  /** Receives new lists, the first included. */
  readonly onChange: (lists: RevocationLists) => void;
}

/** The lists in force in numbers, for metrics. */
export interface CrlStats {
  readonly lists: number;
  readonly entries: number;
  /** Lists whose next update is overdue; they stay in force. */
  readonly overdue: number;
  /** Updates of the file that could not be used. */
  readonly refused: number;
}

/** Delay after the last event of the folder (docs/spec/hbone.md §4). */
const CRL_DEBOUNCE_MS = 2_000;

/** Interval of readings without an event; a missing file is looked for this often. */
const POLL_MS = 5_000;

/**
 * Follows the file of revocation lists (`CRL_PATH`). Nothing is revoked until the file could be read once; a broken or
 * missing update leaves the last good lists in force. Each problem is logged once, and the file is read again until it is
 * good. The owner closes it.
 */
export class CrlFile {
  readonly #path: string;
  readonly #deps: CrlFileDeps;
  #lists: RevocationLists | null = null;
  /** SHA-256 of the content in force. */
  #seen: string | null = null;
  #problem: string | null = null;
  #refused = 0;
  #followed: FollowedFile | null = null;
  readonly #reading = new FreshReading(() => this.#read());
  #closed = false;

  constructor(path: string, deps: CrlFileDeps) {
    this.#path = path;
    this.#deps = deps;
  }

  /** The lists in force; null until the file could be used once. */
  get current(): RevocationLists | null {
    return this.#lists;
  }

  /** The reason why the latest reading failed; null when it did not. */
  get problem(): string | null {
    return this.#problem;
  }

  get stats(): CrlStats {
    const lists = this.#lists?.lists ?? [];
    const nowMs = this.#deps.clock.now();
    return {
      lists: lists.length,
      entries: lists.reduce((sum, list) => sum + list.serials.length, 0),
      overdue: lists.filter(({ nextUpdateMs }) => nextUpdateMs !== null && nextUpdateMs < nowMs)
        .length,
      refused: this.#refused,
    };
  }

  /** Reads the file and follows it. A missing or broken file is no failure. */
  async start(): Promise<void> {
    await this.reload();
    if (this.#closed) return;
    this.#followed = new FollowedFile(
      {
        path: this.#path,
        debounceMs: CRL_DEBOUNCE_MS,
        pollMs: POLL_MS,
      },
      this.#deps,
      // A reading reports its own failures and never rejects.
      () => void this.reload(),
    );
  }

  /** Reads the file now, after a reading under way. */
  reload(): Promise<void> {
    return this.#reading.run();
  }

  /** Stops following. */
  close(): void {
    this.#closed = true;
    this.#followed?.close();
  }

  async #read(): Promise<void> {
    const { log, onChange } = this.#deps;
    try {
      const content = await readBounded(this.#path, MAX_CRL_BYTES);
      const digest = hash('sha256', content);
      if (this.#closed) return;
      if (this.#seen === digest) {
        this.#problem = null;
        return;
      }
      this.#lists = parseRevocationLists(content);
      this.#seen = digest;
      this.#problem = null;
    } catch (error) {
      this.#refuse(errorText(error));
      return;
    }
    const { lists, entries, overdue } = this.stats;
    log.info({ path: this.#path, lists, entries }, 'crl.loaded');
    if (overdue > 0) {
      log.warn({ path: this.#path, overdue }, 'crl.overdue');
    }
    onChange(this.#lists);
  }

  #refuse(problem: string): void {
    // Every poll meets the same problem; it is logged once.
    if (this.#closed || problem === this.#problem) return;
    this.#problem = problem;
    this.#refused += 1;
    const keepsLastGood = this.#lists !== null;
    const level = keepsLastGood ? 'warn' : 'error';
    this.#deps.log[level]({ path: this.#path, problem, keepsLastGood }, 'crl.unusable');
  }
}
