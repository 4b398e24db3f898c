import { watch } from 'node:fs';
import { open, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Command } from 'commander';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { meshPaths } from '../local/mesh-paths.ts';
import { requireMesh } from '../local/mesh-record.ts';
import type { CommandContext } from '../main.ts';
import { meshOption, print } from '../output.ts';
import { UsageError } from '../usage-error.ts';

interface LogOptions {
  readonly follow?: boolean;
  readonly tail: string;
  readonly mesh?: string;
}

/** Read at a time, and the most of one file that `--tail` looks through. */
const CHUNK_BYTES = 1024 * 1024;

/** `weft logs`. */
export function addLogs(program: Command, context: CommandContext): void {
  program
    .command('logs')
    .description('the logs of the mesh, one JSON object a line')
    .argument('[actor]', 'an actor (all its nodes), <actor>.<node> or <node>/<actor>; default all')
    .option('-f, --follow', 'go on printing what is written')
    .option('--tail <lines>', 'lines of each log to begin with', '200')
    .addOption(meshOption())
    .action(async (actor: string | undefined, options: LogOptions) => {
      if (!/^\d{1,9}$/.test(options.tail)) throw new UsageError('--tail takes a number of lines');
      const paths = meshPaths(options.mesh, context.environment);
      await requireMesh(paths);
      const names = await chooseLogs(paths.logsDir, actor);
      const logs = names.map((name) => new LogReader(join(paths.logsDir, name)));
      for (const log of logs) await log.printTail(Number(options.tail));
      if (options.follow === true) await followAll(paths.logsDir, logs);
    });
}

async function chooseLogs(directory: string, actor: string | undefined): Promise<string[]> {
  const names = (await readdir(directory)).filter((name) => name.endsWith('.log')).sort();
  if (actor === undefined) return names;
  const [left = '', right] = actor.split('/');
  const wanted = right === undefined ? left : `${right}.${left}`;
  const chosen = names.filter((name) => name === `${wanted}.log` || name.startsWith(`${wanted}.`));
  if (chosen.length > 0) return chosen;
  const known = names.map((name) => name.replace(/\.log$/, ''));
  throw new MeshError('STATE_INVALID', `no log of ${actor}; there are ${known.join(', ')}`);
}

/** Prints one log from a position on; starts again when the file was cut. */
class LogReader {
  readonly path: string;
  #position = 0;

  constructor(path: string) {
    this.path = path;
  }

  /** Prints the last lines and stands at the end of the file. */
  async printTail(lines: number): Promise<void> {
    const file = await open(this.path, 'r');
    try {
      const { size } = await file.stat();
      const start = Math.max(0, size - CHUNK_BYTES);
      const { buffer, bytesRead } = await file.read(Buffer.alloc(size - start), 0, size - start, start);
      this.#position = start + bytesRead;
      const all = buffer.toString('utf8', 0, bytesRead).split('\n').filter(Boolean);
      const shown = lines === 0 ? [] : all.slice(-lines);
      if (shown.length > 0) await print(`${shown.join('\n')}\n`);
    } finally {
      await file.close();
    }
  }

  /** Prints what was added. */
  async printNew(): Promise<void> {
    const file = await open(this.path, 'r');
    try {
      const { size } = await file.stat();
      if (size < this.#position) this.#position = 0;
      while (this.#position < size) {
        const length = Math.min(CHUNK_BYTES, size - this.#position);
        const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, this.#position);
        if (bytesRead === 0) break;
        this.#position += bytesRead;
        await print(buffer.toString('utf8', 0, bytesRead));
      }
    } finally {
      await file.close();
    }
  }
}

/** Follows until the command is interrupted or the directory goes. */
async function followAll(directory: string, logs: readonly LogReader[]): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let turn = Promise.resolve();
  const look = (): void => {
    turn = turn
      .then(async () => {
        for (const log of logs) await log.printNew();
      })
      .catch((error: unknown) => {
        // The mesh ended and took its logs along.
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') resolve();
        else reject(error instanceof Error ? error : new Error(String(error)));
      });
  };
  const watcher = watch(directory, look);
  watcher.on('error', reject);
  look();
  try {
    await promise;
  } finally {
    watcher.close();
  }
}
