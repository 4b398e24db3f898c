/** The project's image as an archive, built once for each state of its sources and kept in the user's cache. */
import { createHash } from 'node:crypto';
import { access, mkdir, readFile, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { buildTimeLeft } from './build-time.ts';
import { CACHE } from './cache.ts';
import { DockerHost, TIMED_OUT, dockerUnavailable } from './docker-host.ts';

/** The image's name in the archive. */
export const WEFT_IMAGE = 'weft:test';
/** The base image's name. */
export const BASE_IMAGE = 'weft-base:bookworm';
/** A cold build fetches packages and compiles the addon. */
const BUILD_TIMEOUT_MS = 600_000;

const ROOT = new URL('../..', import.meta.url).pathname;
const FOLDER = join(CACHE, 'images');
/** The files that infra/docker/Dockerfile copies. */
const SOURCES = [
  '.npmrc',
  'infra/docker',
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
export async function weftArchive(): Promise<
  { readonly path: string } | { readonly missing: string }
> {
  const path = await archivePath();
  if (await isThere(path)) return { path };
  const missing = dockerUnavailable();
  if (missing !== null) return { missing };
  const end = performance.now() + buildTimeLeft(BUILD_TIMEOUT_MS);
  const left = (): number => Math.max(1, Math.round((end - performance.now()) / 1_000));
  const host = await DockerHost.create();
  try {
    await host.start('machine');
    await host.base(BASE_IMAGE, left());
    await host.build(BASE_IMAGE, left());
    await keepArchive(host);
    return { path };
  } catch (error) {
    if ((error as { readonly code?: unknown }).code !== TIMED_OUT) throw error;
    return { missing: 'the image could not be built in the time there was' };
  } finally {
    await host.remove();
  }
}

/** Puts the image that this daemon has built into the cache, in place of older ones. */
export async function keepArchive(host: DockerHost): Promise<void> {
  const path = await archivePath();
  if (await isThere(path)) return;
  await rm(FOLDER, { recursive: true, force: true });
  await mkdir(FOLDER, { recursive: true });
  await host.docker('tag', 'weft', WEFT_IMAGE);
  await host.docker('save', '--output', `${path}.new`, WEFT_IMAGE);
  await rename(`${path}.new`, path);
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
