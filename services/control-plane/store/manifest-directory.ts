/** Keeps the store in step with a directory of manifest files. */
import { watch } from 'node:fs';
import type { FSWatcher } from 'node:fs';
import { readFile, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { inSlices } from '../../../lib/clock/time-slice.ts';
import { sha256Hex } from '../../../lib/digest/sha256.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { parseManifestText } from '../../../lib/kube/manifest-text.ts';
import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { MAX_MANIFEST_BYTES, MAX_MANIFEST_FILES, SLICE_MS } from '../limits.ts';
import { parseDocuments } from '../manifests/parse.ts';
import type { ParsedManifest } from '../manifests/parse.ts';
import { ManifestRejection } from '../manifests/rejection.ts';
import type { AdmissionContext } from './admission.ts';
import type { ObjectStore } from './object-store.ts';
import { applyFile, removeFile } from './transactions.ts';
import type { FixedNamespaces } from './transactions.ts';

/** What the directory needs. */
export interface ManifestDirectoryDeps {
  readonly store: ObjectStore;
  readonly clock: Clock;
  readonly log: Logger;
  readonly context: () => AdmissionContext & FixedNamespaces;
  /** Told how many files are broken, after every look. */
  readonly brokenFiles: (count: number) => void;
  /** Told of every refusal of a changed file. */
  readonly refused: () => void;
}

/** Editors write a file in several steps; a look this long after the last of them sees it whole. */
const SETTLE_MS = 100;
/** Notices of the file system may be lost, or not come at all on a network mount. */
const RESCAN_MS = 5_000;

/** Watches one directory, not those below it. Files: `*.yaml`, `*.yml`, `*.json`, none that begin with a dot. */
export class ManifestDirectory {
  readonly #path: string;
  readonly #deps: ManifestDirectoryDeps;
  /** Content hash of files that were refused, so that each content is reported once. */
  readonly #broken = new Map<string, string>();
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

  /** Takes up the files as they are, then follows changes. A missing directory is looked for again. */
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

  /** Compares the files with what was applied, once; calls during a look lead to one more. */
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
      // Nothing is deleted because a directory cannot be read.
      const text = errorText(error);
      if (text !== this.#unreadable) {
        log.error({ directory: this.#path, error: text }, 'manifests.directory-unreadable');
      }
      this.#unreadable = text;
      return;
    }
    await this.#removeMissing(names);
    // A file may define what an earlier one lets go, or live in a later one's namespace: try until nothing moves.
    let left = names;
    for (let progress = true; progress && left.length > 0;) {
      const refused: string[] = [];
      for (const name of left) if (!(await this.#applyFile(name, false))) refused.push(name);
      progress = refused.length < left.length;
      left = refused;
    }
    for (const name of left) await this.#applyFile(name, true);
    this.#deps.brokenFiles(this.#broken.size);
    for (const name of this.#broken.keys()) if (!names.includes(name)) this.#broken.delete(name);
    log.trace({ objects: store.state.size }, 'manifests.looked');
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

  /** True when the file is applied, now or before. `report` says whether a refusal is told. */
  async #applyFile(name: string, report: boolean): Promise<boolean> {
    const { store, log, context } = this.#deps;
    const path = join(this.#path, name);
    let hash = '';
    try {
      const content = await readManifestFile(path);
      hash = sha256Hex(content);
      if (store.state.fileHash(name) === hash) return this.#forgive(name);
      if (this.#broken.get(name) === hash && !report) return false;
      const manifests = parseFile(path, content);
      const applied = await store.transact((draft) =>
        inSlices(applyFile(draft, { name, hash }, manifests, context()), SLICE_MS),
      );
      const changed = applied.filter(({ result }) => result !== 'unchanged').length;
      log.info({ file: name, objects: applied.length, changed }, 'manifests.file-applied');
      return this.#forgive(name);
    } catch (error) {
      if (report) this.#refuse(name, hash, error);
      return false;
    }
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
      // The look reports an unreadable directory; watching is tried again with the next one.
      this.#deps.log.debug({ error: errorText(error) }, 'manifests.not-watched');
    }
  }

  #noteChange(): void {
    this.#settle?.cancel();
    this.#settle = this.#deps.clock.after(SETTLE_MS, () => void this.look());
  }
}

async function readManifestFile(path: string): Promise<string> {
  const { size } = await stat(path);
  if (size > MAX_MANIFEST_BYTES) {
    throw new MeshError('MANIFEST_INVALID', `${path} is larger than ${MAX_MANIFEST_BYTES} bytes`);
  }
  return readFile(path, 'utf8');
}

function parseFile(path: string, content: string): readonly ParsedManifest[] {
  const text = parseManifestText(path, content);
  if (text.problems.length > 0) throw new ManifestRejection(text.problems);
  const { manifests, problems } = parseDocuments(text.documents);
  if (problems.length > 0) throw new ManifestRejection(problems);
  return manifests;
}
