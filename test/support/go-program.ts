/** Builds the tests' Go programs once for each state of their sources, and keeps them in the user's cache. */
import { execFile } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { access, mkdir, readFile, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { processEnvironment } from '../../lib/config/env.ts';
import type { Environment } from '../../lib/config/env.ts';
import { buildTimeLeft } from './build-time.ts';
import { CACHE } from './cache.ts';

const run = promisify(execFile);
const PATH_OF_GO = '/usr/local/go/bin';
const MAX_OUTPUT_BYTES = 16 * 1024 * 1024;

/** A program, or the reason why there is none. */
export type GoProgram = { readonly path: string } | { readonly missing: string };

/** A program to build. */
export interface GoSource {
  readonly name: string;
  /** The module's folder. */
  readonly folder: string;
  /** The package: `.` or a folder below the module's, or the path of a package of another module that this one requires. */
  readonly package: string;
  /** Folder of the cache. */
  readonly cache: string;
  readonly ldflags?: string;
  /** Build tags, comma-separated. */
  readonly tags?: string;
  /** Static for a program that runs where no library is; dynamic when left out. */
  readonly linked?: 'static';
  /** Longest time of a build, where no tier sets an end. After an interruption Go's own cache keeps the compiled packages. */
  readonly timeoutMs: number;
}

/** Builds that this process has begun, by the path of the program. */
const builds = new Map<string, Promise<GoProgram>>();

/** Builds a program, once for all who ask at the same time. Does not throw when the machine lacks something. */
export async function buildGoProgram(source: GoSource): Promise<GoProgram> {
  const program = join(CACHE, source.cache, `${source.name}-${await digest(source)}`);
  const build = builds.get(program) ?? buildAt(program, source);
  builds.set(program, build);
  return build;
}

async function buildAt(program: string, source: GoSource): Promise<GoProgram> {
  if (await exists(program)) return { path: program };
  await mkdir(dirname(program), { recursive: true });
  // Build under a temporary name, so that an interrupted build leaves no partial program.
  const fresh = `${program}.${randomBytes(6).toString('hex')}`;
  const { ldflags, tags } = source;
  const flags = [
    ...(ldflags === undefined ? [] : ['-ldflags', ldflags]),
    ...(tags === undefined ? [] : ['-tags', tags]),
  ];
  try {
    await runGo(
      [
        'build',
        '-trimpath',
        '-buildvcs=false',
        '-mod=readonly',
        ...flags,
        '-o',
        fresh,
        isForeign(source) ? source.package : `./${source.package}`,
      ],
      source.folder,
      source.timeoutMs,
      source.linked === 'static' ? { CGO_ENABLED: '0' } : {},
    );
    await rename(fresh, program);
    return { path: program };
  } catch (error) {
    await rm(fresh, { force: true });
    return { missing: goFailure(source.name, error) };
  }
}

/** Runs the machine's Go in a module's folder, within the tier's time for builds; returns its output. */
export async function runGo(
  args: readonly string[],
  folder: string,
  timeoutMs: number,
  more: Environment = {},
): Promise<string> {
  const environment = processEnvironment();
  const { stdout } = await run('go', [...args], {
    cwd: folder,
    timeout: Math.min(timeoutMs, buildTimeLeft(timeoutMs)),
    maxBuffer: MAX_OUTPUT_BYTES,
    // Use only the machine's Go; fetch no other version.
    env: {
      ...environment,
      PATH: `${environment['PATH'] ?? ''}:${PATH_OF_GO}`,
      GOTOOLCHAIN: 'local',
      GOWORK: 'off',
      ...more,
    },
  });
  return stdout;
}

/** Says why a run of Go failed. */
export function goFailure(name: string, error: unknown): string {
  const { code, syscall, killed, stderr } = error as {
    readonly code?: unknown;
    readonly syscall?: string;
    readonly killed?: boolean;
    readonly stderr?: string;
  };
  if (code === 'ENOENT' && syscall === 'spawn go')
    return `Go is not installed, so ${name} cannot be built`;
  if (killed === true)
    return `${name} could not be built in the time there was; the next run goes on`;
  const lines = (stderr ?? String(error)).trim().split('\n');
  return `${name} cannot be built: ${lines.slice(-2).join(' ')}`;
}

/** True for a package of another module, whose version go.mod pins. */
function isForeign({ package: path }: GoSource): boolean {
  return path.split('/')[0]?.includes('.') === true && path !== '.';
}

async function digest(source: GoSource): Promise<string> {
  const hash = createHash('sha256')
    .update(source.ldflags ?? '')
    .update(source.tags ?? '');
  const own = isForeign(source) ? [] : [join(source.package, 'main.go')];
  for (const file of ['go.mod', 'go.sum', ...own]) {
    hash.update(await readFile(join(source.folder, file)));
  }
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
