/** Follows a growing log across the rotation of `limitLog`, which copies it to `<path>.1` and empties it. */
import { open, stat } from 'node:fs/promises';
import { ifExists } from '../../lib/files/atomic-file.ts';

/** Most bytes read at once. */
const SLICE_BYTES = 64 * 1024;
/** A line longer than this is shown in parts. */
const LINE_LIMIT_BYTES = 1024 * 1024;

const NEWLINE = 0x0a;

/** Reports the lines of one log file. */
export class LogFollower {
  readonly #path: string;
  readonly #onLines: (lines: Buffer) => Promise<void>;
  #offset = 0;
  #inode = 0n;
  #rest: Buffer = Buffer.alloc(0);

  /** `onLines` gets whole lines, each with its line end. */
  constructor(path: string, onLines: (lines: Buffer) => Promise<void>) {
    this.#path = path;
    this.#onLines = onLines;
  }

  /** Reports the lines added since the last call. An absent file has none. */
  async poll(): Promise<void> {
    const now = await inspect(this.#path);
    if (now === null) return;
    if (now.inode !== this.#inode || now.size < this.#offset) await this.#startOver(now.inode);
    await this.#read(this.#path);
  }

  /** Reports a last line without line end. */
  async flush(): Promise<void> {
    if (this.#rest.length === 0) return;
    const last = this.#rest;
    this.#rest = Buffer.alloc(0);
    await this.#onLines(Buffer.concat([last, Buffer.from('\n')]));
  }

  /** Reads the lines written between the last call and the rotation; they are at the end of the older part. */
  async #startOver(inode: bigint): Promise<void> {
    if (this.#inode !== 0n) {
      const older = await inspect(`${this.#path}.1`);
      if (older !== null && older.size > this.#offset) await this.#read(`${this.#path}.1`);
      await this.flush();
    }
    this.#inode = inode;
    this.#offset = 0;
  }

  async #read(path: string): Promise<void> {
    await using file = await ifExists(open(path, 'r'));
    if (file === null) return;
    for (;;) {
      const slice = Buffer.allocUnsafe(SLICE_BYTES);
      const { bytesRead } = await file.read(slice, 0, SLICE_BYTES, this.#offset);
      if (bytesRead === 0) return;
      this.#offset += bytesRead;
      await this.#take(slice.subarray(0, bytesRead));
    }
  }

  async #take(bytes: Buffer): Promise<void> {
    const all = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes]);
    const end = all.lastIndexOf(NEWLINE) + 1;
    this.#rest = all.subarray(end);
    if (end > 0) await this.#onLines(all.subarray(0, end));
    if (this.#rest.length > LINE_LIMIT_BYTES) await this.flush();
  }
}

async function inspect(path: string): Promise<{ inode: bigint; size: number } | null> {
  const found = await ifExists(stat(path, { bigint: true }));
  return found === null ? null : { inode: found.ino, size: Number(found.size) };
}
