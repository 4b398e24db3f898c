/** Builds the C++ programs of this folder from the addon's own sources, each file once for each state of the sources. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { access, mkdir, readFile, readdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { buildTimeLeft } from '../../support/build-time.ts';

const run = promisify(execFile);
const ROOT = new URL('../../..', import.meta.url).pathname;
/** The folder of the sources under test. */
export const CORE = join(ROOT, 'lib/linux/addon/carry');
const TESTS = join(ROOT, 'test/native');
const OUT = join(ROOT, '.cache/native');
const BUILD_TIMEOUT_MS = 240_000;
/** Compilers at a time. */
const PARALLEL = 2;
const WARNINGS = ['-std=c++20', '-Wall', '-Wextra', '-Werror', '-g'] as const;

/** A compiler with the checks that it builds into programs. */
export interface Flavour {
  readonly name: string;
  readonly compiler: string;
  readonly flags: readonly string[];
}

/** Address errors and undefined behaviour; the first one ends the program. */
export const ADDRESSES: Flavour = {
  name: 'addresses',
  compiler: 'g++',
  flags: ['-O1', '-fsanitize=address,undefined', '-fno-sanitize-recover=undefined'],
};

/** Address errors, in a build that takes a few seconds. */
export const QUICK: Flavour = {
  name: 'quick',
  compiler: 'g++',
  flags: ['-O0', '-fsanitize=address'],
};

/** Races between threads. */
export const THREADS: Flavour = {
  name: 'threads',
  compiler: 'g++',
  flags: ['-O1', '-fsanitize=thread'],
};

/** Fuzzers, with the checks of {@link ADDRESSES}. */
export const FUZZERS: Flavour = {
  name: 'fuzzers',
  compiler: 'clang++',
  flags: ['-O1', '-fsanitize=fuzzer,address,undefined', '-fno-sanitize-recover=undefined'],
};

/** The time for building is over. The objects that are built are kept for the next run. */
export class TooSlow extends Error {
  override readonly message = 'SKIPPED native: the build did not fit into its time';
}

/** Returns why nothing of this flavour can be built on this machine; null when it can. */
export async function missing(flavour: Flavour): Promise<string | null> {
  try {
    await run(flavour.compiler, ['--version']);
  } catch {
    return `SKIPPED native: ${flavour.compiler} is missing: run sh infra/setup.sh --native`;
  }
  try {
    await access('/usr/include/openssl/ssl.h');
  } catch {
    return 'SKIPPED native: the headers of OpenSSL are missing: run sh infra/setup.sh --native';
  }
  return null;
}

/**
 * Builds a program of one source file in this folder and returns its path. `changed` is taken for the source under test of the same
 * name. Throws with the compiler's words.
 */
export async function build(flavour: Flavour, source: string, changed?: string): Promise<string> {
  const core = (await readdir(CORE))
    .filter((name) => name.endsWith('.cc'))
    .map((name) => (changed?.endsWith(`/${name}`) === true ? changed : join(CORE, name)));
  const headers = [
    ...(await readdir(CORE)).map((name) => join(CORE, name)),
    ...(await readdir(join(TESTS, 'support'))).map((name) => join(TESTS, 'support', name)),
  ].filter((name) => name.endsWith('.h'));
  const common = await Promise.all(headers.toSorted().map((path) => readFile(path)));
  await mkdir(OUT, { recursive: true });
  const objects: string[] = [];
  const waiting = [...core, join(TESTS, source)];
  const worker = async (): Promise<void> => {
    for (let path = waiting.pop(); path !== undefined; path = waiting.pop()) {
      objects.push(await compile(flavour, path, common));
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, worker));
  const name = `${flavour.name}-${source.replace(/\.cc$/, '')}`;
  const program = join(OUT, changed === undefined ? name : `${name}-changed`);
  const libraries = ['-lcrypto', '-lssl', '-pthread'];
  await execute(flavour.compiler, [...flavour.flags, '-o', program, ...objects, ...libraries]);
  return program;
}

/** Compiles one file unless an object of the same sources and flags is kept. */
async function compile(flavour: Flavour, path: string, common: readonly Buffer[]): Promise<string> {
  const hash = createHash('sha256').update([flavour.compiler, ...flavour.flags].join(' '));
  for (const part of [...common, await readFile(path)]) hash.update(part);
  const object = join(OUT, `${hash.digest('hex').slice(0, 32)}.o`);
  try {
    await access(object);
    return object;
  } catch {
    // Not built yet.
  }
  const made = `${object}.${process.pid}`;
  // A changed source may leave something unused.
  const warnings = path.startsWith(ROOT) ? [] : ['-w'];
  const flags = [...WARNINGS, ...warnings, ...flavour.flags];
  await execute(flavour.compiler, [...flags, '-I', CORE, '-c', path, '-o', made]);
  await rename(made, object);
  return object;
}

async function execute(command: string, args: readonly string[]): Promise<void> {
  try {
    await run(command, [...args], { timeout: buildTimeLeft(BUILD_TIMEOUT_MS) });
  } catch (error) {
    if (error instanceof Error && 'killed' in error && error.killed === true) throw new TooSlow();
    const words = error instanceof Error && 'stderr' in error ? String(error.stderr) : '';
    throw new Error(`${command} failed: ${words}`, { cause: error });
  }
}
