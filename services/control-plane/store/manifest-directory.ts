/** Keeps the store in step with a directory of manifest files. */
import { watch } from 'node:fs';
import type { FSWatcher } from 'node:fs';
import { readFile, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { inSlices } from '../../../lib/async/time-slice.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { MAX_MANIFEST_BYTES, MAX_MANIFEST_FILES, SLICE_MS } from '../limits.ts';
import type { FileManifests, ManifestReader } from '../manifests/manifest-reader.ts';
import { ManifestRejection } from '../manifests/rejection.ts';
import type { AdmissionContext } from './admission.ts';
import type { ObjectStore } from './object-store.ts';
import { applyFile, removeFile } from './transactions.ts';

/** Dependencies of a {@link ManifestDirectory}. */
export interface ManifestDirectoryDeps {
  readonly store: ObjectStore;
  readonly reader: ManifestReader;
  readonly clock: Clock;
  readonly log: Logger;
  readonly context: () => AdmissionContext;
  /** Called after every look with the number of broken files. */
  readonly brokenFiles: (count: number) => void;
  /** Called for every refusal of a changed file. */
  readonly refused: () => void;
}

/** Pause before a look. Editors write a file in several steps; the pause lets the last one pass. */
const SETTLE_MS = 100;
/** Interval of looks without a notice: notices of the file system may be lost, and a network mount sends none. */
const RESCAN_MS = 5_000;

/** Time after which a write has another time stamp: longer than a tick of any file system's clock. */
const SAME_STAMP_MS = 2_000;

/** Follows one directory without its subdirectories: `*.yaml`, `*.yml` and `*.json`, except names with a leading dot. */
export class ManifestDirectory {
  readonly #path: string;
  readonly #deps: ManifestDirectoryDeps;
  /** Content hash of files that were refused, so that each content is reported once. */
  readonly #broken = new Map<string, string>();
  /** The hash and the time stamps of each applied file. */
  readonly #applied = new Map<string, { readonly hash: string; readonly stamp: string }>();
  #watcher: FSWatcher | null = null;
  #rescan: Timer | null = null;
  #settle: Timer | null = null;
  #looking: Promise<void> | null = null;
  #again = false;
  #closed = false;
  #unreadable: string | null = null;

  constructor(path: string, deps: ManifestDirectoryDeps) {
    this.#path = path;
    this.#deps = deps;
  }

  /** Applies the files, then follows changes. A missing directory is looked for again. */
  async start(): Promise<void> {
    await this.look();
    this.#watch();
    this.#rescan = this.#deps.clock.every(RESCAN_MS, () => {
      this.#watch();
      void this.look();
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#rescan?.cancel();
    this.#settle?.cancel();
    this.#watcher?.close();
    this.#watcher = null;
    await this.#looking;
  }

  /** Compares the files with the applied ones, once. Calls during a look lead to one more look. */
  look(): Promise<void> {
    if (this.#looking !== null) {
      this.#again = true;
      return this.#looking;
    }
    this.#looking = this.#lookAll().finally(() => {
      this.#looking = null;
    });
    return this.#looking;
  }

  async #lookAll(): Promise<void> {
    do {
      this.#again = false;
      await this.#lookOnce();
    } while (this.#again && !this.#closed);
  }

  async #lookOnce(): Promise<void> {
    const { store, log } = this.#deps;
    let names: string[];
    try {
      names = (await readdir(this.#path, { withFileTypes: true }))
        .filter((entry) => !entry.isDirectory() && /^[^.].*\.(ya?ml|json)$/.test(entry.name))
        .map((entry) => entry.name)
        .sort();
      if (names.length > MAX_MANIFEST_FILES) {
        throw new Error(`holds more than ${MAX_MANIFEST_FILES} files`);
      }
      this.#unreadable = null;
    } catch (error) {
      // An unreadable directory deletes nothing.
      const text = errorText(error);
      if (text !== this.#unreadable) {
        log.error({ directory: this.#path, error: text }, 'manifests.directory-unreadable');
      }
      this.#unreadable = text;
      return;
    }
    await this.#removeMissing(names);
    // A file may define an object that another file gives up, or need another file's namespace. Retry while one succeeds.
    let left = names;
    for (let progress = true; progress && left.length > 0;) {
      const refused: string[] = [];
      for (const name of left) if (!(await this.#applyFile(name, false))) refused.push(name);
      progress = refused.length < left.length;
      left = refused;
    }
    for (const name of left) await this.#applyFile(name, true);
    this.#deps.brokenFiles(this.#broken.size);
    const present = new Set(names);
    for (const known of [this.#broken, this.#applied]) {
      for (const name of known.keys()) if (!present.has(name)) known.delete(name);
    }
    log.trace({ objects: store.state.size }, 'manifests.compared');
  }

  async #removeMissing(names: readonly string[]): Promise<void> {
    const { store, log, context } = this.#deps;
    const present = new Set(names);
    const gone = [...store.state.fileNames()].filter((name) => !present.has(name));
    for (const name of gone) {
      try {
        const deleted = await store.transact((draft) =>
          inSlices(removeFile(draft, name, context()), SLICE_MS),
        );
        log.info({ file: name, deleted: deleted.length }, 'manifests.file-removed');
      } catch (error) {
        log.error({ file: name, error: errorText(error) }, 'manifests.file-not-removed');
      }
    }
  }

  /** True when the file is applied, now or before. `report` decides whether a refusal is logged. */
  async #applyFile(name: string, report: boolean): Promise<boolean> {
    const { store, log, context } = this.#deps;
    const applied = store.state.fileHash(name) ?? null;
    let hash = '';
    try {
      // Refused content is parsed once per look, when it is reported.
      const refused = report ? undefined : this.#broken.get(name);
      const read = await this.#read(name, applied, refused ?? applied);
      hash = read.hash;
      if (hash === applied) return this.#forgive(name);
      if (this.#broken.get(name) === hash && !report) return false;
      if (read.refusal !== null) throw read.refusal;
      const objects = await store.transact((draft) =>
        inSlices(applyFile(draft, { name, hash }, read.manifests, context()), SLICE_MS),
      );
      const changed = objects.filter(({ result }) => result !== 'unchanged').length;
      log.info({ file: name, objects: objects.length, changed }, 'manifests.file-applied');
      return this.#forgive(name);
    } catch (error) {
      if (report) this.#refuse(name, hash, error);
      return false;
    }
  }

  /** The content of a file. A file is not read again while its time stamps are those of its last application. */
  async #read(name: string, applied: string | null, known: string | null): Promise<FileManifests> {
    const path = join(this.#path, name);
    const stamp = await stampOf(path);
    const applies = this.#applied.get(name);
    if (applied !== null && applies?.hash === applied && applies.stamp === stamp.text) {
      return { hash: applied, manifests: [], refusal: null };
    }
    const read = await this.#deps.reader.file(path, await readFile(path), known);
    // A write within the same tick of the file system's clock leaves the stamps unchanged.
    if (this.#deps.clock.now() - stamp.changedMs > SAME_STAMP_MS) {
      this.#applied.set(name, { hash: read.hash, stamp: stamp.text });
    }
    return read;
  }

  #forgive(name: string): true {
    this.#broken.delete(name);
    return true;
  }

  #refuse(name: string, hash: string, error: unknown): void {
    if (this.#broken.get(name) === hash) return;
    this.#broken.set(name, hash);
    this.#deps.refused();
    const problems = error instanceof ManifestRejection ? error.problems : null;
    this.#deps.log.error(
      { file: name, error: errorText(error), ...(problems === null ? {} : { problems }) },
      'manifests.file-refused',
    );
  }

  #watch(): void {
    if (this.#watcher !== null || this.#closed) return;
    try {
      const watcher = watch(this.#path, { persistent: false }, () => this.#noteChange());
      watcher.on('error', (error) => {
        this.#deps.log.warn({ error: errorText(error) }, 'manifests.watch-lost');
        watcher.close();
        if (this.#watcher === watcher) this.#watcher = null;
      });
      this.#watcher = watcher;
    } catch (error) {
      // The look reports an unreadable directory. The next look tries again to watch it.
      this.#deps.log.debug({ error: errorText(error) }, 'manifests.not-watched');
    }
  }

  #noteChange(): void {
    this.#settle?.cancel();
    this.#settle = this.#deps.clock.after(SETTLE_MS, () => void this.look());
  }
}

/** The stamps of a file, which change with every write. Throws MANIFEST_INVALID when the file is too large. */
async function stampOf(path: string): Promise<{ text: string; changedMs: number }> {
  const { size, ino, mtimeNs, ctimeNs, ctimeMs } = await stat(path, { bigint: true });
  if (size > MAX_MANIFEST_BYTES) {
    throw new MeshError('MANIFEST_INVALID', `${path} is larger than ${MAX_MANIFEST_BYTES} bytes`);
  }
  return { text: [ino, size, mtimeNs, ctimeNs].join(' '), changedMs: Number(ctimeMs) };
}
