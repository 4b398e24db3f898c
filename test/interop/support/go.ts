/** Builds the tests' Go programs once for each state of their sources, and keeps them in the user's cache. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { access, mkdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { processEnvironment } from '../../../lib/config/env.ts';
import { buildTimeLeft } from '../../support/build-time.ts';
import { CACHE } from '../../support/cache.ts';

const run = promisify(execFile);
const SOURCES = ['go.mod', 'go.sum', 'main.go'] as const;
/** A cold build fetches and compiles about a hundred packages. After an interruption Go's own cache keeps the compiled ones. */
const BUILD_TIMEOUT_MS = 300_000;
const PATH_OF_GO = '/usr/local/go/bin';

/** A program, or the reason why there is none. */
export type GoProgram = { readonly path: string } | { readonly missing: string };

/** Builds the program of the module in `test/interop/<name>`. Does not throw when the machine lacks something. */
export async function goProgram(name: string): Promise<GoProgram> {
  const environment = processEnvironment();
  const folder = new URL(`../${name}/`, import.meta.url).pathname;
  const cache = join(CACHE, 'interop');
  const program = join(cache, `${name}-${await digest(folder)}`);
  if (await exists(program)) return { path: program };
  await mkdir(cache, { recursive: true });
  const path = `${environment['PATH'] ?? ''}:${PATH_OF_GO}`;
  // Build under a temporary name, so that an interrupted build leaves no partial program.
  const fresh = `${program}.${process.pid}`;
  try {
    await run('go', ['build', '-trimpath', '-mod=readonly', '-o', fresh, '.'], {
      cwd: folder,
      timeout: Math.min(BUILD_TIMEOUT_MS, buildTimeLeft(BUILD_TIMEOUT_MS)),
      // Use only the machine's Go; fetch no other version.
      env: { ...environment, PATH: path, GOTOOLCHAIN: 'local', GOWORK: 'off' },
    });
    await rename(fresh, program);
    return { path: program };
  } catch (error) {
    await rm(fresh, { force: true });
    return { missing: reason(name, error) };
  }
}

async function digest(folder: string): Promise<string> {
  const hash = createHash('sha256');
  for (const file of SOURCES) hash.update(await readFile(join(folder, file)));
  return hash.digest('hex').slice(0, 16);
}

async function exists(path: string): Promise<boolean> {
  try {
    await access(path);
    return true;
  } catch {
    // Not built yet.
    return false;
  }
}

function reason(name: string, error: unknown): string {
  const { code, killed, stderr } = error as {
    readonly code?: unknown;
    readonly killed?: boolean;
    readonly stderr?: string;
  };
  if (code === 'ENOENT') return `Go is not installed, so ${name} cannot be built`;
  if (killed === true)
    return `${name} could not be built in the time there was; the next run goes on`;
  const lines = (stderr ?? String(error)).trim().split('\n');
  return `${name} cannot be built: ${lines.slice(-2).join(' ')}`;
}
