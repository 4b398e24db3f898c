/**
 * The store on disk: a snapshot, and a journal of the transactions since. A transaction is one line with a
 * checksum, synced before anyone hears of it, so that SIGKILL leaves the state before or after it, never between.
 */
import { mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { isKind } from '../manifests/kinds.ts';
import type { StateChange } from './state.ts';

const SNAPSHOT = 'snapshot.json';
const FORMAT = 1;
const DIRECTORY_MODE = 0o700;
const FILE_MODE = 0o600;

/** What was on disk. */
export interface LoadedJournal {
  readonly journal: Journal;
  readonly changes: readonly StateChange[];
  /** Bytes of an unfinished last line that were cut off; 0 in the normal case. */
  readonly tornBytes: number;
}

/** The open journal. One process at a time may have a directory open. */
export class Journal {
  readonly #directory: string;
  #file: FileHandle;
  #generation: number;
  #length: number;
  /** Set when a failed write could not be undone: what is on disk is then unknown. */
  #broken = false;

  private constructor(directory: string, file: FileHandle, generation: number, length: number) {
    this.#directory = directory;
    this.#file = file;
    this.#generation = generation;
    this.#length = length;
  }

  /**
   * Opens the directory, which is made when it is missing. Throws STATE_INVALID that names the file when what it
   * holds is damaged, other than by a write that was cut short.
   */
  static async open(directory: string): Promise<LoadedJournal> {
    await mkdir(directory, { recursive: true, mode: DIRECTORY_MODE });
    const { generation, changes } = await readSnapshot(join(directory, SNAPSHOT));
    const path = journalPath(directory, generation);
    const file = await open(path, 'a+', FILE_MODE);
    try {
      const content = await file.readFile();
      const { transactions, validBytes } = parseJournal(path, content);
      if (validBytes < content.length) await file.truncate(validBytes);
      await file.sync();
      await syncDirectory(directory);
      return {
        journal: new Journal(directory, file, generation, validBytes),
        changes: [...changes, ...transactions.flat()],
        tornBytes: content.length - validBytes,
      };
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  /** Bytes in the journal since the last {@link fold}. */
  get length(): number {
    return this.#length;
  }

  /** Writes the transactions and syncs. Throws STATE_UNAVAILABLE; nothing of them is kept then. */
  async append(transactions: readonly (readonly StateChange[])[]): Promise<void> {
    if (this.#broken) {
      throw new MeshError(
        'STATE_UNAVAILABLE',
        'an earlier write to the journal could not be undone',
      );
    }
    const bytes = Buffer.from(transactions.map(journalLine).join(''));
    try {
      await this.#file.appendFile(bytes);
      await this.#file.datasync();
      this.#length += bytes.length;
    } catch (error) {
      await this.#undo(error);
      throw new MeshError('STATE_UNAVAILABLE', `cannot write the journal: ${errorText(error)}`, {
        cause: error,
      });
    }
  }

  /** Writes the whole state as the new snapshot and starts an empty journal. */
  async fold(contents: Iterable<StateChange>): Promise<void> {
    const generation = this.#generation + 1;
    const path = join(this.#directory, SNAPSHOT);
    const temporary = `${path}.tmp`;
    const next = await open(journalPath(this.#directory, generation), 'w+', FILE_MODE);
    try {
      const file = await open(temporary, 'w', FILE_MODE);
      try {
        await file.writeFile(
          JSON.stringify({ format: FORMAT, generation, changes: [...contents] }),
        );
        await file.sync();
      } finally {
        await file.close();
      }
      // The moment from which the new generation counts: from here on there is no way back.
      await rename(temporary, path);
    } catch (error) {
      await next.close();
      throw error;
    }
    const old = { file: this.#file, path: journalPath(this.#directory, this.#generation) };
    this.#file = next;
    this.#generation = generation;
    this.#length = 0;
    await old.file.close();
    await syncDirectory(this.#directory);
    await rm(old.path, { force: true });
  }

  async close(): Promise<void> {
    await this.#file.close();
  }

  async #undo(cause: unknown): Promise<void> {
    try {
      await this.#file.truncate(this.#length);
      await this.#file.datasync();
    } catch (error) {
      this.#broken = true;
      throw new MeshError(
        'STATE_UNAVAILABLE',
        `cannot write the journal (${errorText(cause)}), nor undo that: ${errorText(error)}`,
        { cause: error },
      );
    }
  }
}

function journalPath(directory: string, generation: number): string {
  return join(directory, `journal.${generation}`);
}

function journalLine(changes: readonly StateChange[]): string {
  const text = JSON.stringify(changes);
  return `${checksum(text)} ${text}\n`;
}

function checksum(text: string): string {
  return crc32(text).toString(16).padStart(8, '0');
}

/** Reads lines up to the first that is cut short; a broken line with others behind it is damage. */
function parseJournal(
  path: string,
  content: Buffer,
): { transactions: StateChange[][]; validBytes: number } {
  const transactions: StateChange[][] = [];
  let start = 0;
  while (start < content.length) {
    const end = content.indexOf(0x0a, start);
    if (end === -1) break;
    const line = content.toString('utf8', start, end);
    const changes = parseLine(line);
    if (changes === null) {
      if (end === content.length - 1) break;
      throw new MeshError('STATE_INVALID', `${path} is damaged at byte ${start}`);
    }
    transactions.push(changes);
    start = end + 1;
  }
  return { transactions, validBytes: start };
}

function parseLine(line: string): StateChange[] | null {
  const text = line.slice(9);
  if (line[8] !== ' ' || line.slice(0, 8) !== checksum(text)) return null;
  return JSON.parse(text) as StateChange[];
}

async function readSnapshot(
  path: string,
): Promise<{ generation: number; changes: readonly StateChange[] }> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    // No snapshot yet: the first generation.
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') {
      return { generation: 0, changes: [] };
    }
    throw error;
  }
  try {
    const parsed = JSON.parse(text) as {
      format: unknown;
      generation: number;
      changes: StateChange[];
    };
    if (parsed.format !== FORMAT) throw new Error(`format ${String(parsed.format)} is not known`);
    for (const change of parsed.changes) {
      if (change.op === 'put' && !isKind(change.object.kind)) {
        throw new Error(`kind ${String(change.object.kind)} is not known`);
      }
    }
    return { generation: parsed.generation, changes: parsed.changes };
  } catch (error) {
    throw new MeshError('STATE_INVALID', `${path} is damaged: ${errorText(error)}`, {
      cause: error,
    });
  }
}

async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
