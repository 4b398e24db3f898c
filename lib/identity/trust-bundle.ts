import type { X509Certificate } from 'node:crypto';
import type { Clock } from '../clock/clock.ts';
import { asMeshError, errorText } from '../errors/mesh-error.ts';
import type { MeshError } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';
import { FollowedFile } from '../files/followed-file.ts';
import { FreshReading } from '../files/fresh-reading.ts';
import { parseCertificates } from '../tls/pem.ts';
import { readRoots } from '../tls/roots.ts';
import type { RootSource } from '../tls/roots.ts';

/** The trusted roots. */
export interface Roots {
  /** Each root once, PEM. */
  readonly pem: string;
  readonly certificates: readonly X509Certificate[];
}

/** Collaborators of a {@link TrustBundle}. */
export interface TrustBundleDeps {
  readonly clock: Clock;
  readonly log: Pick<Logger, 'debug' | 'info' | 'warn'>;
  /** Throws for readable roots that must not be trusted. */
  readonly check?: (roots: readonly X509Certificate[]) => void;
}

/** Delay after an event: a projected volume replaces its files in several steps. */
const DEBOUNCE_MS = 500;

/** Interval of readings without an event: watching may be impossible, or the folder may not exist yet. */
const POLL_MS = 2_000;

/**
 * Reads a trust bundle and follows its file. A broken or missing update leaves the last good roots in force. The owner
 * closes it.
 */
export class TrustBundle {
  readonly #source: RootSource;
  readonly #deps: TrustBundleDeps;
  readonly #listeners = new Set<(roots: Roots) => void>();
  #current: Roots | null = null;
  #lastProblem: string | null = null;
  /** The error of the latest check; null when the check passed. */
  #refusal: MeshError | null = null;
  #followed: FollowedFile | null = null;
  readonly #reading = new FreshReading(() => this.#read());
  #closed = false;

  constructor(source: RootSource, deps: TrustBundleDeps) {
    this.#source = source;
    this.#deps = deps;
  }

  /** The roots in force; null before the first reading. */
  get current(): Roots | null {
    return this.#current;
  }

  /** The reason why the latest reading failed; null when it did not. */
  get problem(): string | null {
    return this.#lastProblem;
  }

  /**
   * Reads the bundle and follows it. A missing bundle is no failure; a failed check of its roots is, with the check's
   * error.
   */
  async start(): Promise<void> {
    await this.reload();
    if (this.#refusal !== null) throw this.#refusal;
    if (this.#source.kind !== 'file' || this.#closed) return;
    this.#followed = new FollowedFile(
      {
        path: this.#source.path,
        debounceMs: DEBOUNCE_MS,
        pollMs: POLL_MS,
      },
      this.#deps,
      // A reading reports its own failures and never rejects.
      () => void this.reload(),
    );
  }

  /** Calls `listener` with the roots after every change, the first reading included; the returned function ends that. */
  onChange(listener: (roots: Roots) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Reads the bundle now, after a reading under way. */
  reload(): Promise<void> {
    return this.#reading.run();
  }

  /** Stops following. */
  close(): void {
    this.#closed = true;
    this.#followed?.close();
    this.#listeners.clear();
  }

  async #read(): Promise<void> {
    let roots: Roots;
    try {
      const certificates = parseCertificates(await readRoots(this.#source), 'the trust bundle');
      this.#check(certificates);
      const unique = new Map(certificates.map((root) => [root.fingerprint256, root]));
      const list = [...unique.values()];
      roots = { certificates: list, pem: list.map((root) => root.toString()).join('') };
    } catch (error) {
      this.#refuse(errorText(error));
      return;
    }
    this.#lastProblem = null;
    if (this.#closed || roots.pem === this.#current?.pem) return;
    this.#current = roots;
    this.#deps.log.info({ roots: roots.certificates.length }, 'trust-bundle.loaded');
    for (const listener of this.#listeners) listener(roots);
  }

  #check(certificates: readonly X509Certificate[]): void {
    this.#refusal = null;
    try {
      this.#deps.check?.(certificates);
    } catch (error) {
      this.#refusal = asMeshError(error, 'CONFIG_INVALID');
      throw this.#refusal;
    }
  }

  #refuse(problem: string): void {
    // Every poll meets the same problem; it is logged once.
    if (this.#closed || problem === this.#lastProblem) return;
    this.#lastProblem = problem;
    this.#deps.log.warn(
      { problem, keepsLastGood: this.#current !== null },
      'trust-bundle.unusable',
    );
  }
}
