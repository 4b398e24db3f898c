/** The reference programs of CNI, built from their Go modules: `cnitool`, and the plugins that it runs. */
import { copyFile, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TeardownOwner } from '../../support/actor-context.ts';
import { buildGoProgram } from '../../support/go-program.ts';

/** A cold build fetches and compiles about twenty packages. */
const BUILD_TIMEOUT_MS = 240_000;
const PLUGINS = 'github.com/containernetworking/plugins/plugins';
const PACKAGES = {
  cnitool: 'github.com/containernetworking/cni/cnitool',
  bridge: `${PLUGINS}/main/bridge`,
  'host-local': `${PLUGINS}/ipam/host-local`,
  loopback: `${PLUGINS}/main/loopback`,
  portmap: `${PLUGINS}/meta/portmap`,
} as const;

/** Paths of the programs by their names. */
export type CniPrograms = Readonly<Record<keyof typeof PACKAGES, string>>;

/** Builds what is not built yet. `missing` says why there is nothing to test with. */
export async function cniPrograms(): Promise<CniPrograms | { readonly missing: string }> {
  const paths: Record<string, string> = {};
  for (const [name, path] of Object.entries(PACKAGES)) {
    const program = await buildGoProgram({
      name,
      folder: new URL('../programs/', import.meta.url).pathname,
      package: path,
      cache: 'cni',
      ldflags: '-s -w',
      timeoutMs: BUILD_TIMEOUT_MS,
    });
    if ('missing' in program) return program;
    paths[name] = program.path;
  }
  return paths as CniPrograms;
}

/** Makes a folder of plugins under the names that configurations use, as a host has it. */
export async function pluginFolder(t: TeardownOwner, programs: CniPrograms): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'weft-cni-bin-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  for (const name of ['bridge', 'host-local', 'portmap'] as const) {
    await copyFile(programs[name], join(folder, name));
  }
  return folder;
}
