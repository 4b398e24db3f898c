/** The store on disk: a SQLite database. A commit is synced before it is acknowledged. */
import { existsSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { StatementSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { MeshError, asMeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { MAX_LOG_FILE_BYTES, MAX_MESSAGE_ROWS } from '../limits.ts';
import { createFile } from './directory-lock.ts';
import type { StoreRow } from './store-row.ts';
import { checkWal } from './wal-check.ts';

const FORMAT = 1;
/** How long a commit waits for another reader of the file, such as a person with a SQLite shell. */
const BUSY_TIMEOUT_MS = 5_000;

/** Rows in the order in which their keys were first written; `check` is the checksum of the other columns. */
const SCHEMA = `
  PRAGMA journal_mode = WAL;
  BEGIN;
  CREATE TABLE entries (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    file TEXT,
    content TEXT NOT NULL,
    "check" INTEGER NOT NULL
  ) STRICT;
  PRAGMA user_version = ${FORMAT};
  COMMIT`;
const UPSERT = `
  INSERT INTO entries (key, file, content, "check") VALUES (?1, ?2, ?3, ?4)
  ON CONFLICT (key) DO UPDATE SET file = ?2, content = ?3, "check" = ?4`;

/** The open file. Its calls block, so it runs in a thread of its own. */
export class StoreFile {
  /** True when an unfinished commit was dropped. */
  readonly dropped: boolean;
  readonly #path: string;
  readonly #database: DatabaseSync;
  readonly #select: StatementSync;
  readonly #upsert: StatementSync;
  readonly #delete: StatementSync;

  /**
   * Opens the file in a directory that this process has locked, and makes it when it is missing. Throws STATE_INVALID that names
   * the file when its content is damaged or of another format.
   */
  constructor(directory: string) {
    this.#path = join(directory, 'store.db');
    try {
      refuseOtherFormats(directory);
      this.dropped = checkWal(this.#path);
      if (!existsSync(this.#path)) createDatabase(this.#path);
      this.#database = openDatabase(this.#path);
    } catch (error) {
      throw asMeshError(error, 'STATE_UNAVAILABLE', `cannot open ${this.#path}`);
    }
    this.#select = this.#database.prepare(
      'SELECT id, key, file, content, "check" FROM entries WHERE id > ? ORDER BY id LIMIT ?',
    );
    this.#upsert = this.#database.prepare(UPSERT);
    this.#delete = this.#database.prepare('DELETE FROM entries WHERE key = ?');
  }

  /**
   * The rows that follow the row with id `after`; 0 reads the first ones. An empty result is the end. Throws STATE_INVALID
   * when the checksum of a row is wrong.
   */
  read(after: number): { rows: StoreRow[]; last: number } {
    const found = this.#select.all(after, MAX_MESSAGE_ROWS) as unknown as (StoreRow & {
      readonly id: number;
      readonly check: number;
    })[];
    const rows = found.map(({ key, file, content, check }) => {
      if (checkOf({ key, file, content }) === check) return { key, file, content };
      throw new MeshError('STATE_INVALID', `${this.#path} is damaged: ${key} is not as written`);
    });
    return { rows, last: found.at(-1)?.id ?? after };
  }

  /**
   * Writes rows of a transaction: `first` begins it, `last` makes it durable. Throws STATE_UNAVAILABLE after rolling the
   * transaction back.
   */
  write(rows: readonly StoreRow[], first: boolean, last: boolean): void {
    try {
      if (first) {
        // Ends a transaction whose caller failed before its last part.
        this.#rollBack();
        this.#database.exec('BEGIN IMMEDIATE');
      }
      for (const row of rows) {
        if (row.content === null) this.#delete.run(row.key);
        else this.#upsert.run(row.key, row.file, row.content, checkOf(row));
      }
      if (last) this.#database.exec('COMMIT');
    } catch (error) {
      this.#rollBack();
      throw asMeshError(error, 'STATE_UNAVAILABLE', `cannot write ${this.#path}`);
    }
  }

  /** Closes the file; SQLite then moves its log into it. */
  close(): void {
    this.#database.close();
  }

  #rollBack(): void {
    if (this.#database.isTransaction) this.#database.exec('ROLLBACK');
  }
}

function checkOf({ key, file, content }: StoreRow): number {
  return crc32(content ?? '', crc32(`${key}\n${file ?? ''}\n`));
}

/** Makes the database under another name and renames it, so that a file of the right name always has its tables. */
function createDatabase(path: string): void {
  const temporary = `${path}.new`;
  for (const suffix of ['', '-wal', '-shm']) rmSync(`${temporary}${suffix}`, { force: true });
  createFile(temporary);
  const database = new DatabaseSync(temporary);
  database.exec(SCHEMA);
  database.close();
  renameSync(temporary, path);
}

function openDatabase(path: string): DatabaseSync {
  const database = new DatabaseSync(path, { timeout: BUSY_TIMEOUT_MS });
  try {
    const problems = database.prepare('PRAGMA quick_check(1)').all();
    if (problems[0]?.['quick_check'] !== 'ok')
      throw new Error(String(problems[0]?.['quick_check']));
    const format = database.prepare('PRAGMA user_version').get()?.['user_version'];
    if (format !== FORMAT) throw new Error(`format ${String(format)} is unknown`);
    database.exec(`PRAGMA synchronous = FULL; PRAGMA journal_size_limit = ${MAX_LOG_FILE_BYTES}`);
    return database;
  } catch (error) {
    database.close();
    throw new MeshError('STATE_INVALID', `${path} is damaged: ${errorText(error)}`, {
      cause: error,
    });
  }
}

function refuseOtherFormats(directory: string): void {
  const old = readdirSync(directory).find((name) => /^(snapshot\.json|journal\.\d+)$/.test(name));
  if (old === undefined) return;
  throw new MeshError(
    'STATE_INVALID',
    `${join(directory, old)} is of a format that is no longer read: remove it, start, and apply the manifests again`,
  );
}
