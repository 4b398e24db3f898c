import { copyFile, open, readdir, stat, truncate } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { ifExists } from '../../lib/files/atomic-file.ts';

/** A log is rotated at this size; one older part is kept. */
export const LOG_LIMIT_BYTES = 64 * 1024 * 1024;

/** Opens a log for appending, for a child to write to. The caller closes it. */
export function openLog(path: string): Promise<FileHandle> {
  return open(path, 'a', 0o640);
}

/**
 * Copies a log that is past the limit to `<path>.1` and empties it. Writers append, so they continue at the start.
 * Lines written between the copy and the cut are lost. A missing log is skipped.
 */
export async function limitLog(path: string, limitBytes = LOG_LIMIT_BYTES): Promise<boolean> {
  const found = await ifExists(stat(path));
  if (found === null || found.size <= limitBytes) return false;
  await copyFile(path, `${path}.1`);
  await truncate(path, 0);
  return true;
}

/** Applies {@link limitLog} to every log in a directory. */
export async function limitLogs(directory: string, limitBytes = LOG_LIMIT_BYTES): Promise<void> {
  const names = await readdir(directory);
  for (const name of names.filter((entry) => entry.endsWith('.log'))) {
    await limitLog(join(directory, name), limitBytes);
  }
}

/** Reads the last `lines` lines of a log, at most 64 KiB. A missing log has none. */
export async function lastLines(path: string, lines: number): Promise<string[]> {
  await using file = await ifExists(open(path, 'r'));
  return file === null ? [] : await lastLinesOf(file, lines);
}

/** {@link lastLines} for an open file. */
export async function lastLinesOf(file: FileHandle, lines: number): Promise<string[]> {
  const { size } = await file.stat();
  const length = Math.min(size, 65_536);
  const { buffer } = await file.read(Buffer.alloc(length), 0, length, size - length);
  return buffer.toString('utf8').split('\n').filter(Boolean).slice(-lines);
}

/** The error for a process that refuses its configuration, with the last lines of its log. */
export async function misconfigured(name: string, logFile: string): Promise<MeshError> {
  const [reason = `see ${logFile}`] = await lastLines(logFile, 1);
  return new MeshError(
    'CONFIG_INVALID',
    `${name} refuses its configuration: ${reason.replace(/^weft: /, '')}`,
  );
}
