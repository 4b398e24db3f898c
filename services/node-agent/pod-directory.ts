/** Reads pods from a directory with one JSON file per pod, `<uid>.json`, which writers replace atomically. */
import { constants, watch } from 'node:fs';
import type { BigIntStats, FSWatcher } from 'node:fs';
import { open, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock, Timer } from '../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { schemaProblems } from '../../lib/errors/schema-problems.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { podRecordSchema } from '../../lib/state/pod-record.ts';
import type { PodRecord } from '../../lib/state/pod-record.ts';
import { MAX_PODS, MAX_RECORD_BYTES } from './limits.ts';
import type { FindOptions, PodNetwork, PodSet, PodSource } from './pod-source.ts';

/** Settings and ports of a {@link PodDirectory}. */
export interface PodDirectoryOptions {
  readonly path: string;
  readonly node: string;
  /** Time between two scans of the directory without a reported change. */
  readonly rescanMs: number;
  readonly clock: Clock;
  readonly log: Logger;
  /** Called once per version of a malformed file, and when the directory cannot be read. */
  readonly onProblem: (kind: 'record' | 'directory') => void;
  /** Supervises scans: an error of the callback of {@link PodDirectory.start} fails the actor. */
  readonly supervise: (work: Promise<void>) => void;
}

interface KnownFile {
  /** The version of the file. */
  readonly version: string;
  /** The last good record; null when there never was one. */
  readonly record: PodRecord | null;
}

/** Time in which changes are gathered before one scan. */
const SETTLE_MS = 20;

/** Reads pods from a directory until closed. */
export class PodDirectory implements PodSource {
  readonly #options: PodDirectoryOptions;
  #files = new Map<string, KnownFile>();
  #onPods: (set: PodSet) => void = () => undefined;
  #watcher: FSWatcher | null = null;
  #rescan: Timer | null = null;
  #soon: Timer | null = null;
  #scanning: Promise<void> | null = null;
  #again = false;
  #complete = false;
  #problem: string | null = null;
  #closed = false;

  constructor(options: PodDirectoryOptions) {
    this.#options = options;
  }

  /** Starts scanning. Calls `onPods` with the first complete set and after every change. */
  async start(onPods: (set: PodSet) => void): Promise<void> {
    this.#onPods = onPods;
    const { clock, rescanMs } = this.#options;
    this.#rescan = clock.every(rescanMs, () => this.#scanSoon(0));
    await this.#scan();
  }

  /** Returns the pod of this name, after a scan when it is not known or `fresh`; null when there is none. */
  async find(
    namespace: string,
    name: string,
    _network?: PodNetwork,
    { fresh = false }: FindOptions = {},
  ): Promise<PodRecord | null> {
    const known = (): PodRecord | undefined =>
      [...this.#files.values()]
        .map(({ record }) => record)
        .find((record) => record?.namespace === namespace && record.name === name) ?? undefined;
    if (fresh || known() === undefined) {
      // A scan under way may have passed the file.
      await this.#scanning;
      await this.#scan();
    }
    return known() ?? null;
  }

  /** The records name the namespaces themselves. */
  place(): void {}

  close(): void {
    this.#closed = true;
    this.#rescan?.cancel();
    this.#soon?.cancel();
    this.#unwatch();
  }

  #scanSoon(delayMs: number): void {
    if (this.#closed || this.#soon !== null) return;
    this.#soon = this.#options.clock.after(delayMs, () => {
      this.#soon = null;
      this.#options.supervise(this.#scan());
    });
  }

  /** Scans the directory, one scan at a time; a request during a scan adds one more. */
  #scan(): Promise<void> {
    if (this.#scanning !== null) {
      this.#again = true;
      return this.#scanning;
    }
    this.#scanning = this.#readDirectory().finally(() => {
      this.#scanning = null;
      if (!this.#again) return;
      this.#again = false;
      this.#scanSoon(SETTLE_MS);
    });
    return this.#scanning;
  }

  async #readDirectory(): Promise<void> {
    let names: readonly string[];
    try {
      // The watch comes first, so that no change falls between the listing and the watch.
      this.#watch();
      names = (await readdir(this.#options.path)).filter(isRecordName).sort();
      this.#problem = null;
    } catch (error) {
      this.#unwatch();
      this.#report(`cannot read ${this.#options.path}: ${errorText(error)}`);
      return;
    }
    if (names.length > MAX_PODS) {
      this.#report(`${names.length} records in ${this.#options.path}, more than ${MAX_PODS}`);
      names = names.slice(0, MAX_PODS);
    }
    const files = new Map<string, KnownFile>();
    let changed = !this.#complete;
    for (const name of names) {
      const known = this.#files.get(name);
      const file = await this.#readFile(name, known);
      if (file === null) continue;
      changed ||= file !== known;
      files.set(name, file);
    }
    changed ||= files.size !== this.#files.size;
    this.#files = files;
    this.#complete = true;
    if (changed && !this.#closed) this.#onPods(podSet(files));
  }

  /** Reads the file: `known` when it has not changed, null when it is gone. */
  async #readFile(name: string, known: KnownFile | undefined): Promise<KnownFile | null> {
    const path = join(this.#options.path, name);
    let version = 'unreadable';
    try {
      // An unchanged file need not be opened.
      if (known !== undefined && known.version === versionOf(await stat(path, { bigint: true })))
        return known;
      // A pipe would block, and would hold up every other pod.
      const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
      try {
        const status = await file.stat({ bigint: true });
        if (!status.isFile()) throw new MeshError('STATE_INVALID', 'is no regular file');
        version = versionOf(status);
        if (known?.version === version) return known;
        if (status.size > MAX_RECORD_BYTES) {
          throw new MeshError('STATE_INVALID', `is larger than ${MAX_RECORD_BYTES} bytes`);
        }
        const record = parseRecord(await file.readFile('utf8'), name, this.#options.node);
        return { version, record };
      } finally {
        await file.close();
      }
    } catch (error) {
      if (isMissing(error)) return null;
      if (known?.version === version) return known;
      this.#options.onProblem('record');
      this.#options.log.error({ file: path, reason: errorText(error) }, 'pods.record-malformed');
      // The previous state stays in force.
      return { version, record: known?.record ?? null };
    }
  }

  #watch(): void {
    if (this.#watcher !== null || this.#closed) return;
    const watcher = watch(this.#options.path, { persistent: false }, () =>
      this.#scanSoon(SETTLE_MS),
    );
    // The directory may be gone: the next scan finds out and starts a new watch.
    watcher.on('error', () => this.#unwatch());
    this.#watcher = watcher;
  }

  #unwatch(): void {
    this.#watcher?.close();
    this.#watcher = null;
  }

  #report(problem: string): void {
    if (problem === this.#problem) return;
    this.#problem = problem;
    this.#options.onProblem('directory');
    this.#options.log.error({ reason: problem }, 'pods.directory-unreadable');
  }
}

/** Parses a record. Throws STATE_INVALID that names every wrong field. */
export function parseRecord(text: string, fileName: string, node: string): PodRecord {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new MeshError('STATE_INVALID', `is no JSON: ${errorText(error)}`, { cause: error });
  }
  const parsed = podRecordSchema.safeParse(value);
  if (!parsed.success) {
    throw new MeshError('STATE_INVALID', schemaProblems(parsed.error, 'record'));
  }
  const record = parsed.data;
  if (`${record.uid}.json` !== fileName) {
    throw new MeshError('STATE_INVALID', `uid: ${record.uid} is not the name of the file`);
  }
  if (record.node !== node) {
    throw new MeshError('STATE_INVALID', `node: ${record.node} is not this node, ${node}`);
  }
  return record;
}

function versionOf({ ino, mtimeNs, size }: BigIntStats): string {
  return `${ino}.${mtimeNs}.${size}`;
}

function podSet(files: ReadonlyMap<string, KnownFile>): PodSet {
  const pods = new Map<string, PodRecord>();
  const unreadable = new Set<string>();
  for (const [name, { record }] of files) {
    if (record === null) unreadable.add(name.slice(0, -'.json'.length));
    else pods.set(record.uid, record);
  }
  return { pods, unreadable };
}

/** Names of pod files; temporary files of an atomic replacement start with a dot or have another ending. */
function isRecordName(name: string): boolean {
  return name.endsWith('.json') && !name.startsWith('.');
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT';
}
