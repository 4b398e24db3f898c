import { closeSync, mkdirSync, openSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { MeshError, asMeshError } from '../../../lib/errors/mesh-error.ts';

const DIRECTORY_MODE = 0o700;

/** Mode of the state's files: only the mesh's own user reads them. */
const STATE_FILE_MODE = 0o600;

/** SQLITE_BUSY, https://www.sqlite.org/rescode.html#busy */
const BUSY = 5;

/** How long to wait while another process reads the holder's name. */
const BUSY_TIMEOUT_MS = 1_000;

/**
 * Locks the state directory for this process, and makes it when it is missing. The lock is an open write transaction on
 * `lock.db`. The kernel ends the transaction when the process dies. Other processes can still read the holder's name. Closing
 * the result unlocks the directory. Throws STATE_UNAVAILABLE; for a directory in use it names the directory and its holder.
 */
export function lockDirectory(directory: string): DatabaseSync {
  try {
    mkdirSync(directory, { recursive: true, mode: DIRECTORY_MODE });
    return lockFile(directory, join(directory, 'lock.db'));
  } catch (error) {
    throw asMeshError(error, 'STATE_UNAVAILABLE', `cannot lock ${directory}`);
  }
}

function lockFile(directory: string, path: string): DatabaseSync {
  createFile(path);
  const lock = new DatabaseSync(path, { timeout: BUSY_TIMEOUT_MS });
  try {
    lock.exec(
      'CREATE TABLE IF NOT EXISTS holder (id INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT',
    );
    lock.exec('BEGIN IMMEDIATE');
    lock
      .prepare('INSERT OR REPLACE INTO holder VALUES (1, ?)')
      .run(`process ${process.pid} on ${hostname()} since ${new Date().toISOString()}`);
    // The commit lets others read the name. Another process may take the lock before the second BEGIN, which then fails.
    lock.exec('COMMIT; BEGIN IMMEDIATE');
    return lock;
  } catch (error) {
    const held = isBusy(error) ? holderOf(lock) : null;
    lock.close();
    if (held === null) throw error;
    throw new MeshError('STATE_UNAVAILABLE', `${directory} is in use by ${held}`, { cause: error });
  }
}

/** Makes an empty file for SQLite, which gives its other files the same mode. Leaves an existing file unchanged. */
export function createFile(path: string): void {
  try {
    closeSync(openSync(path, 'wx', STATE_FILE_MODE));
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
  }
}

function isBusy(error: unknown): boolean {
  return error instanceof Error && 'errcode' in error && error.errcode === BUSY;
}

function holderOf(lock: DatabaseSync): string {
  const row = lock.prepare('SELECT name FROM holder').get();
  return typeof row?.['name'] === 'string' ? row['name'] : 'a process that starts';
}
