/**
 * Builds the programs that actors run: bundles without comments and types, in `dist/<digest of the sources>/`, to which
 * `dist/current` leads. A process that runs an earlier build keeps its files. Quick when nothing has changed.
 */
import { createHash, randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import * as esbuild from 'esbuild';

const ROOT = join(import.meta.dirname, '..');
const DIST = join(ROOT, 'dist');
const CURRENT = join(DIST, 'current');
/** Builds that stay, for processes that run them. */
const KEPT_BUILDS = 8;

/** Each is a program, the entry of a thread, or a library that is loaded late. */
const ENTRIES = [
  'lib/config/yaml-library.ts',
  'services/cli/main.ts',
  'services/control-plane/manifests/manifests.worker.ts',
  'services/control-plane/store/store.worker.ts',
  'services/local-mesh/sample-server.ts',
  'services/node-proxy/state-thread/state.worker.ts',
  'workers/listener/listener.worker.ts',
  'workers/signing/signing.worker.ts',
];
/** Folders and files of which the programs are made. */
const SOURCES = ['lib', 'services', 'workers', 'proto/gen', 'package-lock.json', 'infra/build.ts'];
const SOURCE_FILE = /\.[cm]?[jt]s$|package-lock\.json$/;

/** Gives CommonJS packages the `require` that they expect. */
const BANNER =
  "import { createRequire as createRequireOfBuild } from 'node:module'; const require = createRequireOfBuild(import.meta.url);";

async function sourceFiles(): Promise<readonly string[]> {
  const found = await Promise.all(
    SOURCES.map(async (source) => {
      const path = join(ROOT, source);
      if (!(await stat(path)).isDirectory()) return [source];
      const entries = await readdir(path, { recursive: true, withFileTypes: true });
      return entries
        .filter((entry) => entry.isFile() && SOURCE_FILE.test(entry.name))
        .map((entry) => join(entry.parentPath, entry.name).slice(ROOT.length + 1));
    }),
  );
  return found.flat().sort();
}

async function digestOfSources(): Promise<string> {
  const files = await sourceFiles();
  const texts = await Promise.all(files.map((file) => readFile(join(ROOT, file))));
  const hash = createHash('sha256');
  for (const [index, file] of files.entries()) {
    hash.update(`${file}\0${texts[index]?.length}\0`).update(texts[index] ?? '');
  }
  return hash.digest('hex').slice(0, 16);
}

/** Moves `made` to its place, unless another build was there first. */
async function place(made: string, digest: string): Promise<void> {
  try {
    await rename(made, join(DIST, digest));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ENOTEMPTY' && code !== 'EEXIST') throw error;
  }
}

async function bundle(outdir: string): Promise<void> {
  await esbuild.build({
    absWorkingDir: ROOT,
    entryPoints: ENTRIES,
    outdir,
    outbase: ROOT,
    chunkNames: 'parts/[name]-[hash]',
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    mainFields: ['module', 'main'],
    target: 'node26',
    // The text of each thread's programs stays in memory. Source maps give the places of a stack back (lib/errors/source-stack.ts); nothing depends
    // on the name of a class or function.
    minify: true,
    sourcemap: 'linked',
    sourcesContent: false,
    // Piscina starts threads from a file of its own; gRPC loads the other for channelz, which is not used.
    external: ['piscina', '@grpc/proto-loader'],
    // BullMQ loads its calendars with each queue: half a megabyte in each actor, for repeated jobs, of which there are none.
    alias: { 'cron-parser': './lib/bus/no-calendars.ts' },
    banner: { js: BANNER },
    logLevel: 'warning',
  });
}

async function removeOldBuilds(): Promise<void> {
  const entries = await readdir(DIST, { withFileTypes: true });
  const builds = await Promise.all(
    entries
      .filter((entry) => entry.isDirectory())
      .map(async ({ name }) => ({ name, at: (await stat(join(DIST, name))).mtimeMs })),
  );
  const old = builds.sort((a, b) => b.at - a.at).slice(KEPT_BUILDS);
  await Promise.all(old.map(({ name }) => rm(join(DIST, name), { recursive: true, force: true })));
}

/** Makes `dist/current` lead to programs of the present sources. Throws esbuild's error when they cannot be bundled. */
export async function build(): Promise<void> {
  const digest = await digestOfSources();
  const suffix = randomBytes(6).toString('hex');
  await mkdir(DIST, { recursive: true });
  if (
    await stat(join(DIST, digest)).then(
      () => false,
      () => true,
    )
  ) {
    const made = join(DIST, `.${suffix}`);
    try {
      await bundle(made);
      await place(made, digest);
    } finally {
      await rm(made, { recursive: true, force: true });
    }
  }
  // Made anew each time: the launcher compares its age with that of the sources.
  await symlink(digest, `${CURRENT}.${suffix}`);
  await rename(`${CURRENT}.${suffix}`, CURRENT);
  await removeOldBuilds();
}

if (import.meta.main) await build();
