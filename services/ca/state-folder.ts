import { createPrivateKey, randomBytes } from 'node:crypto';
import { link, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../lib/clock/clock.ts';
import { present } from '../../lib/errors/assert.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { readIfPresent, replaceFile } from '../../lib/files/atomic-file.ts';
import { FollowedFile } from '../../lib/files/followed-file.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { parseCertificates } from '../../lib/tls/pem.ts';
import { FILE_DEBOUNCE_MS, FILE_POLL_MS } from './limits.ts';
import { parseState, unusable } from './state.ts';
import type { CaState, StateStore, StoredState } from './state.ts';

/** Collaborators of a {@link StateFolder}. */
export interface StateFolderDeps {
  readonly clock: Clock;
  readonly log: Pick<Logger, 'debug' | 'warn'>;
}

const FILE = /^authority-(\d{1,9})\.json$/;

/** Certificate and key in one file, as earlier versions wrote them. */
const EARLIER_FILE = 'root.pem';

/** A reader meets a replacement at most this often in a row; the CA and its commands replace the state rarely. */
const MAX_READS = 10;

/**
 * The state in a folder, one file for each version: `authority-<n>.json` (0600). A new version is linked under the next
 * number, which fails when another process was faster, and the older files are removed.
 */
export class StateFolder implements StateStore {
  readonly #dir: string;
  readonly #deps: StateFolderDeps;

  constructor(dir: string, deps: StateFolderDeps) {
    this.#dir = dir;
    this.#deps = deps;
  }

  get where(): string {
    return this.#dir;
  }

  async read(): Promise<StoredState | null> {
    for (let attempt = 0; attempt < MAX_READS; attempt += 1) {
      const newest = Math.max(0, ...(await this.#versions()));
      if (newest === 0) return this.#readEarlier();
      const path = this.#path(newest);
      const text = await readIfPresent(path);
      // Null when the version was replaced since the folder was read.
      if (text !== null) return { state: parseState(text, path), version: String(newest) };
    }
    throw new MeshError('STATE_UNAVAILABLE', `${this.#dir} changes faster than it can be read`);
  }

  async version(): Promise<string | null> {
    const newest = Math.max(0, ...(await this.#versions()));
    if (newest > 0) return String(newest);
    return (await readIfPresent(join(this.#dir, EARLIER_FILE))) === null ? null : '0';
  }

  create(state: CaState): Promise<void> {
    return this.#write(state, 0);
  }

  replace(state: CaState, version: string): Promise<void> {
    return this.#write(state, Number(version));
  }

  follow(changed: () => void): () => void {
    const path = join(this.#dir, 'authority');
    const options = { path, debounceMs: FILE_DEBOUNCE_MS, pollMs: FILE_POLL_MS };
    const followed = new FollowedFile(options, this.#deps, changed);
    return () => followed.close();
  }

  async #write(state: CaState, version: number): Promise<void> {
    const versions = await this.#versions();
    const newest = Math.max(0, ...versions);
    if (newest !== version) throw this.#conflict(newest);
    const temporary = join(this.#dir, `authority.${randomBytes(6).toString('hex')}`);
    try {
      await replaceFile(temporary, `${JSON.stringify(state, null, 2)}\n`, 0o600);
      await link(temporary, this.#path(version + 1));
    } catch (error) {
      if (error instanceof Error && 'code' in error && error.code === 'EEXIST') {
        throw this.#conflict(version + 1);
      }
      throw error;
    } finally {
      await rm(temporary, { force: true });
    }
    for (const older of versions) await rm(this.#path(older), { force: true });
    await rm(join(this.#dir, EARLIER_FILE), { force: true });
  }

  /** The root of an earlier version of the CA counts as version 0, so that the next write replaces it. */
  async #readEarlier(): Promise<StoredState | null> {
    const path = join(this.#dir, EARLIER_FILE);
    const content = await readIfPresent(path);
    if (content === null) return null;
    try {
      const [certificate] = parseCertificates(content, path);
      const certificatePem = present(certificate, 'parsing refuses no certificates').toString();
      const key = createPrivateKey(content);
      const keyPem = key.export({ format: 'pem', type: 'pkcs8' });
      const signing = { certificatePem, keyPem };
      const state = { signing, chainPem: '', rootsPem: certificatePem, rotation: null };
      return { state, version: '0' };
    } catch (error) {
      throw unusable(path, error);
    }
  }

  async #versions(): Promise<number[]> {
    let names: string[];
    try {
      names = await readdir(this.#dir);
    } catch (error) {
      if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return [];
      throw error;
    }
    return names.flatMap((name) => {
      const digits = FILE.exec(name)?.[1];
      return digits === undefined ? [] : [Number(digits)];
    });
  }

  #path(version: number): string {
    return join(this.#dir, `authority-${version}.json`);
  }

  #conflict(found: number): MeshError {
    return new MeshError(
      'STATE_CONFLICT',
      `${this.#dir} was changed by another process, to version ${found}`,
    );
  }
}
