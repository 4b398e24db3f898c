import { closeSync, existsSync, fstatSync, openSync, readSync, statSync } from 'node:fs';
import { MeshError } from '../../../lib/errors/mesh-error.ts';

/** https://www.sqlite.org/fileformat2.html#walformat */
const HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;
/** The magic number of a little-endian machine; Weft runs only on these. */
const MAGIC = 0x37_7f_06_82;

/** The two running sums of a write-ahead log. */
type Sums = readonly [number, number];

/**
 * Checks the write-ahead log of a closed database for damage. SQLite reads such a log up to the first broken frame, and
 * silently drops the rest. That is right for one unfinished commit. A second commit behind the broken frame was
 * acknowledged: the check then throws STATE_INVALID with file and byte. Returns true when SQLite will drop one commit.
 */
export function checkWal(databasePath: string): boolean {
  const path = `${databasePath}-wal`;
  if (!existsSync(path)) return false;
  const file = openSync(path, 'r');
  try {
    const { size } = fstatSync(file);
    if (size <= HEADER_BYTES) return false;
    // SQLite makes the log only after the first page of its database.
    if (!existsSync(databasePath) || statSync(databasePath).size === 0) {
      throw new MeshError('STATE_INVALID', `${databasePath} is empty or missing beside its log`);
    }
    return checkFrames(file, path, size);
  } finally {
    closeSync(file);
  }
}

function checkFrames(file: number, path: string, size: number): boolean {
  const header = readAt(file, 0, HEADER_BYTES);
  let sums = sumOf([0, 0], header, 0, 24);
  if (header.readUInt32BE(0) !== MAGIC || !sumsAt(header, 24, sums)) throw damaged(path, 0);
  const frameBytes = FRAME_HEADER_BYTES + header.readUInt32BE(8);
  const salts = header.subarray(16, 24);
  let broken: number | null = null;
  let droppedCommits = 0;
  for (let start = HEADER_BYTES; start + frameBytes <= size; start += frameBytes) {
    const frame = readAt(file, start, frameBytes);
    // A frame with other salts is left from before the log was restarted.
    const current = frame.subarray(8, 16).equals(salts);
    if (broken === null) {
      sums = sumOf(sumOf(sums, frame, 0, 8), frame, FRAME_HEADER_BYTES, frameBytes);
      if (!current || !sumsAt(frame, 16, sums)) broken = start;
    }
    const commits = frame.readUInt32BE(4) !== 0;
    if (broken !== null && current && commits) droppedCommits += 1;
  }
  if (broken !== null && droppedCommits > 1) throw damaged(path, broken);
  return droppedCommits > 0;
}

function readAt(file: number, position: number, length: number): Buffer {
  const bytes = Buffer.alloc(length);
  readSync(file, bytes, 0, length, position);
  return bytes;
}

function sumOf(before: Sums, bytes: Buffer, start: number, end: number): Sums {
  let [first, second] = before;
  for (let at = start; at < end; at += 8) {
    first = (first + bytes.readUInt32LE(at) + second) >>> 0;
    second = (second + bytes.readUInt32LE(at + 4) + first) >>> 0;
  }
  return [first, second];
}

function sumsAt(bytes: Buffer, at: number, [first, second]: Sums): boolean {
  return bytes.readUInt32BE(at) === first && bytes.readUInt32BE(at + 4) === second;
}

function damaged(path: string, byte: number): MeshError {
  return new MeshError('STATE_INVALID', `${path} is damaged at byte ${byte}`);
}
