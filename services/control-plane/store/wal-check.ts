import { closeSync, existsSync, fstatSync, openSync, readSync, statSync } from 'node:fs';
import { MeshError } from '../../../lib/errors/mesh-error.ts';

/** https://www.sqlite.org/fileformat2.html#walformat */
const HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;
/** The magic number of a little-endian machine; Weft runs only on these. */
const MAGIC = 0x37_7f_06_82;

/** The place of the page size in a database, and its bounds; the largest one is stored as 1. */
const PAGE_SIZE_AT = 16;
const SMALLEST_PAGE = 512;
const LARGEST_PAGE = 65_536;

/** The two running sums of a write-ahead log. */
type Sums = readonly [number, number];

/**
 * Checks the write-ahead log of a closed database for damage. SQLite reads such a log up to the first broken frame, and
 * silently drops the rest. That is right for one unfinished commit. A second commit behind the broken frame was
 * acknowledged: the check then throws STATE_INVALID with file and byte. SQLite takes a log with a broken header for empty. A crash breaks
 * the header only while SQLite begins the log anew, when the database holds all of it. Returns true when SQLite will drop one commit.
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
    return checkFrames(file, path, size, databasePath);
  } finally {
    closeSync(file);
  }
}

function checkFrames(file: number, path: string, size: number, databasePath: string): boolean {
  const header = readAt(file, 0, HEADER_BYTES);
  const sums = sumOf([0, 0], header, 0, 24);
  if (header.readUInt32BE(0) === MAGIC && sumsAt(header, 24, sums)) {
    const start = { salts: header.subarray(16, 24), sums };
    return readLog(file, path, size, header.readUInt32BE(8), start).drops;
  }
  const database = openSync(databasePath, 'r');
  try {
    const stored = readAt(database, PAGE_SIZE_AT, 2).readUInt16BE();
    const pageSize = stored === 1 ? LARGEST_PAGE : stored;
    if (pageSize < SMALLEST_PAGE) throw damaged(path, 0);
    for (const [page, at] of readLog(file, path, size, pageSize, null).pages) {
      const inDatabase = readAt(database, (page - 1) * pageSize, pageSize);
      if (!readAt(file, at, pageSize).equals(inDatabase)) throw damaged(path, 0);
    }
    return false;
  } finally {
    closeSync(database);
  }
}

/** The start of a log: the salts of its frames, and the sums before the first of them. */
interface LogStart {
  readonly salts: Buffer;
  readonly sums: Sums;
}

interface LogContent {
  /** The places of the committed pages, by page number. */
  readonly pages: ReadonlyMap<number, number>;
  /** Whether SQLite will drop one commit. */
  readonly drops: boolean;
}

/**
 * Reads the frames of a log. Without its start, the first frame is taken as it is, and the others are checked against it. Throws
 * STATE_INVALID when SQLite would drop more than one commit.
 */
function readLog(
  file: number,
  path: string,
  size: number,
  pageSize: number,
  start: LogStart | null,
): LogContent {
  const frameBytes = FRAME_HEADER_BYTES + pageSize;
  let { salts, sums } = start ?? { salts: null, sums: null };
  let broken: number | null = null;
  let droppedCommits = 0;
  const pages = new Map<number, number>();
  const uncommitted = new Map<number, number>();
  for (let at = HEADER_BYTES; at + frameBytes <= size; at += frameBytes) {
    const frame = readAt(file, at, frameBytes);
    const stored: Sums = [frame.readUInt32BE(16), frame.readUInt32BE(20)];
    salts ??= frame.subarray(8, 16);
    // A frame with other salts is left from before the log was restarted.
    const current = frame.subarray(8, 16).equals(salts);
    if (broken === null) {
      sums =
        sums === null
          ? stored
          : sumOf(sumOf(sums, frame, 0, 8), frame, FRAME_HEADER_BYTES, frameBytes);
      if (!current || !sumsAt(frame, 16, sums)) broken = at;
    }
    const commits = frame.readUInt32BE(4) !== 0;
    if (broken !== null) {
      if (current && commits) droppedCommits += 1;
      continue;
    }
    uncommitted.set(frame.readUInt32BE(0), at + FRAME_HEADER_BYTES);
    if (!commits) continue;
    for (const [page, place] of uncommitted) pages.set(page, place);
    uncommitted.clear();
  }
  if (broken !== null && droppedCommits > 1) throw damaged(path, broken);
  return { pages, drops: droppedCommits > 0 };
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
