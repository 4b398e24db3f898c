import { readFile, stat } from 'node:fs/promises';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';

/**
 * A parsed file. Every use checks the file and reads it again after a change. A broken or missing update leaves the last
 * good content in force.
 */
export class WatchedFile<T> {
  readonly #path: string;
  readonly #parse: (content: string) => T;
  readonly #log: Pick<Logger, 'info' | 'warn'>;
  #good: { readonly value: T } | null = null;
  #seen: string | null = null;
  #problem: string | null = null;

  /** `parse` throws an Error with the reason for unusable content. */
  constructor(path: string, parse: (content: string) => T, log: Pick<Logger, 'info' | 'warn'>) {
    this.#path = path;
    this.#parse = parse;
    this.#log = log;
  }

  /** Returns the last good content. Throws STATE_UNAVAILABLE that names the file before there is any. */
  async read(): Promise<T> {
    try {
      const mark = await fingerprint(this.#path);
      if (mark !== this.#seen) {
        const value = this.#parse(await readFile(this.#path, 'utf8'));
        this.#good = { value };
        this.#seen = mark;
        this.#problem = null;
        this.#log.info({ path: this.#path }, 'file.loaded');
      }
    } catch (error) {
      this.#refuse(errorText(error));
    }
    if (this.#good !== null) return this.#good.value;
    throw new MeshError(
      'STATE_UNAVAILABLE',
      `${this.#path} cannot be used: ${this.#problem ?? 'not read yet'}`,
      { detail: { path: this.#path } },
    );
  }

  #refuse(problem: string): void {
    if (problem === this.#problem) return;
    this.#problem = problem;
    this.#log.warn(
      { path: this.#path, problem, keepsLastGood: this.#good !== null },
      'file.unusable',
    );
  }
}

async function fingerprint(path: string): Promise<string> {
  const { ino, size, mtimeMs } = await stat(path);
  return `${ino}.${size}.${mtimeMs}`;
}
