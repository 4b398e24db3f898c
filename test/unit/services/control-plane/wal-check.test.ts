/** Tests the check of SQLite's log beside SQLite itself: what SQLite recovers without a loss is accepted, and nothing else. */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { checkWal } from '../../../../services/control-plane/store/wal-check.ts';
import { makeScratch } from '../../../support/leftovers.ts';

const HEADER_BYTES = 32;

/** The files of a database at one moment. */
interface Files {
  readonly database: Buffer;
  readonly log: Buffer;
}

/** Writes rows one commit each; returns the files before a checkpoint, after it, and after the first commit of the log's next use. */
async function stages(t: ExecutionContext) {
  const dir = await makeScratch('wal');
  t.teardown(() => rmSync(dir, { recursive: true, force: true }));
  const path = join(dir, 'live.db');
  const live = new DatabaseSync(path);
  live.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0');
  live.exec('CREATE TABLE entries (id INTEGER PRIMARY KEY, content TEXT)');
  const write = (): void =>
    live.exec(`INSERT INTO entries (content) VALUES ('${'x'.repeat(3_000)}')`);
  const files = (): Files => ({ database: readFileSync(path), log: readFileSync(`${path}-wal`) });
  for (let row = 0; row < 5; row += 1) write();
  const before = files();
  live.exec('PRAGMA wal_checkpoint(FULL)');
  const after = files();
  write();
  const restarted = files();
  live.close();
  let count = 0;
  /** Puts the files down anew; `rows` counts the rows that SQLite finds in them. */
  const put = ({ database, log }: Files) => {
    const copy = join(dir, String((count += 1)));
    mkdirSync(copy);
    const at = join(copy, 'store.db');
    writeFileSync(at, database);
    writeFileSync(`${at}-wal`, log);
    const rows = (): number => {
      const opened = new DatabaseSync(at);
      const found = opened.prepare('SELECT count(*) AS rows FROM entries').get()?.['rows'];
      opened.close();
      return Number(found);
    };
    return { path: at, rows };
  };
  return { before, after, restarted, put };
}

function withHeader(log: Buffer, header: Buffer): Buffer {
  return Buffer.concat([header, log.subarray(HEADER_BYTES)]);
}

test('a header that a crash tore while the log began anew is accepted, and nothing is lost', async (t) => {
  const { after, restarted, put } = await stages(t);
  const [old, next] = [after.log, restarted.log].map((log) => log.subarray(0, HEADER_BYTES));
  if (old === undefined || next === undefined) throw new Error('no header');
  t.notDeepEqual(old, next);
  const torn = [Buffer.alloc(HEADER_BYTES)];
  for (let at = 1; at < HEADER_BYTES; at += 1) {
    torn.push(Buffer.concat([next.subarray(0, at), old.subarray(at)]));
    torn.push(Buffer.concat([old.subarray(0, at), next.subarray(at)]));
  }
  for (const header of torn) {
    const { path, rows } = put({ database: after.database, log: withHeader(after.log, header) });
    t.false(checkWal(path), header.toString('hex'));
    t.is(rows(), 5);
  }
});

test('a broken header in front of commits that the database lacks is damage', async (t) => {
  const { before, after, restarted, put } = await stages(t);
  for (const { database, log } of [before, { ...restarted, database: after.database }]) {
    for (let at = 0; at < HEADER_BYTES; at += 1) {
      const header = Buffer.from(log.subarray(0, HEADER_BYTES));
      header.writeUInt8(header.readUInt8(at) ^ 1, at);
      const { path } = put({ database, log: withHeader(log, header) });
      t.throws(() => checkWal(path), { message: `${path}-wal is damaged at byte 0` });
    }
  }
});

test('a broken header does not hide damage behind it', async (t) => {
  const { after, put } = await stages(t);
  const log = withHeader(after.log, Buffer.alloc(HEADER_BYTES));
  const secondFrame = HEADER_BYTES + 24 + 4_096;
  log.writeUInt8(log.readUInt8(secondFrame + 100) ^ 1, secondFrame + 100);
  const { path } = put({ database: after.database, log });
  t.throws(() => checkWal(path), { message: `${path}-wal is damaged at byte ${secondFrame}` });
});
