/** The project's image as an archive, built once for each state of its sources and kept in the user's cache. */
import { createHash } from 'node:crypto';
import { access, mkdir, readFile, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { buildTimeLeft } from './build-time.ts';
import { CACHE } from './cache.ts';
import { DockerHost, TIMED_OUT, dockerUnavailable } from './docker-host.ts';

/** The image's name in the archive. */
export const WEFT_IMAGE = 'weft:test';
/** The base image's name. */
const BASE_IMAGE = 'weft-base:bookworm';
/** A cold build fetches packages and compiles the addon. */
const BUILD_TIMEOUT_MS = 600_000;

const ROOT = new URL('../..', import.meta.url).pathname;
const FOLDER = join(CACHE, 'images');
/** Archives that are kept: those of checkouts side by side. */
const MAX_ARCHIVES = 6;
/** The layers of earlier builds. */
const LAYERS = join(CACHE, 'image-layers');
/** Images with their steps (each build adds some twenty) that are kept there; beyond them the cache begins anew. */
const MAX_LAYERS = 400;
/** infra/docker/Dockerfile, and the files that it copies. */
const SOURCES = [
  '.npmrc',
  'infra/build.ts',
  'infra/docker',
  'infra/redis',
  'lib',
  'package-lock.json',
  'package.json',
  'proto',
  'services',
  'workers',
];
/** Generated folders, which .dockerignore leaves out. */
const GENERATED =
  /^(proto\/gen|lib\/linux\/addon\/build|services\/node-agent\/cni\/plugin\/build)\//;

/** Builds the image when its sources have changed; returns the archive's path. `missing` says why there is none. */
export async function weftArchive(
  limitMs: number = buildTimeLeft(BUILD_TIMEOUT_MS),
): Promise<{ readonly path: string } | { readonly missing: string }> {
  const path = await archivePath();
  if (await isThere(path)) return { path };
  const missing = dockerUnavailable();
  if (missing !== null) return { missing };
  const end = performance.now() + limitMs;
  const left = (): number => Math.max(1, Math.round((end - performance.now()) / 1_000));
  const host = await DockerHost.create(LAYERS);
  try {
    await host.start('machine', limitMs);
    // Another checkout with the same sources may have had the daemon.
    if (await isThere(path)) return { path };
    await boundLayers(host);
    await host.base(BASE_IMAGE, left());
    await host.build(BASE_IMAGE, left());
    await keepArchive(host, path);
    return { path };
  } catch (error) {
    if ((error as { readonly code?: unknown }).code !== TIMED_OUT) throw error;
    return {
      missing:
        'the image could not be built in the time there was; the next run goes on with the layers that are complete',
    };
  } finally {
    await host.remove();
  }
}

async function boundLayers(host: DockerHost): Promise<void> {
  const { stdout } = await host.docker('image', 'ls', '--all', '--quiet');
  if (stdout.split('\n').length <= MAX_LAYERS) return;
  await host.docker('image', 'prune', '--all', '--force');
}

/** Puts the image that this daemon has built into the cache, in place of the oldest ones. */
async function keepArchive(host: DockerHost, path: string): Promise<void> {
  await mkdir(FOLDER, { recursive: true });
  await host.docker('tag', 'weft', WEFT_IMAGE);
  await host.docker('save', '--output', `${path}.new`, WEFT_IMAGE);
  await rename(`${path}.new`, path);
  const kept = await Promise.all(
    (await readdir(FOLDER)).map(async (name) => {
      const file = join(FOLDER, name);
      return { file, madeMs: (await stat(file)).mtimeMs };
    }),
  );
  kept.sort((a, b) => b.madeMs - a.madeMs);
  for (const { file } of kept.slice(MAX_ARCHIVES)) await rm(file);
}

async function archivePath(): Promise<string> {
  const hash = createHash('sha256');
  for (const source of SOURCES) {
    for (const file of await filesOf(source)) {
      if (GENERATED.test(file)) continue;
      hash.update(file).update(await readFile(join(ROOT, file)));
    }
  }
  return join(FOLDER, `weft-${hash.digest('hex').slice(0, 16)}.tar`);
}

/** Files below a path of the project, in a fixed order. */
async function filesOf(path: string): Promise<readonly string[]> {
  const entries = await readdir(join(ROOT, path), { recursive: true, withFileTypes: true }).catch(
    (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOTDIR') return null;
      throw error;
    },
  );
  if (entries === null) return [path];
  const files = entries.filter((entry) => entry.isFile());
  return files.map(({ parentPath, name }) => join(parentPath, name).slice(ROOT.length)).sort();
}

async function isThere(path: string): Promise<boolean> {
  try {
    await access(path);
    return true;
  } catch {
    // Not built yet.
    return false;
  }
}
