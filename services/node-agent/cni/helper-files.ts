/** Lays out the folder from which the plugin runs its helper on the host: Node, its loader and libraries, and the scripts. */
import { createHash } from 'node:crypto';
import {
  copyFile,
  mkdir,
  readFile,
  readdir,
  readlink,
  rename,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { ifExists, temporaryName } from '../../../lib/files/atomic-file.ts';
import { installedPath } from '../../../lib/files/installation.ts';

/** The folder's name beside the plugin (plugin/helper.cc); a link to the folder of the present content. */
export const HELPER_LINK = 'weft-cni.d';

/** Scripts that the helper consists of, below the project's root. */
export const HELPER_SCRIPTS = [
  'services/node-agent/cni/helper.ts',
  'services/node-agent/eligibility.ts',
  'lib/kubernetes/label-selector.ts',
] as const;

const SHARED_LIBRARY = /^(?:ld-linux|lib).*\.so(?:\.|$)/;

/** A file of the folder: its path in it, and the file to copy. */
interface HelperFile {
  readonly to: string;
  readonly from: string;
}

/** Returns the files by what this process itself runs on. Throws NATIVE_SYSCALL when its loader is not found. */
export async function helperFiles(): Promise<readonly HelperFile[]> {
  const maps = await readFile('/proc/self/maps', 'utf8');
  const mapped = new Set([...maps.matchAll(/ (\/.*)$/gm)].map(([, path = '']) => path));
  const libraries = [...mapped].filter((path) => SHARED_LIBRARY.test(basename(path)));
  const loader = libraries.find((path) => basename(path).startsWith('ld-linux'));
  if (loader === undefined) {
    throw new MeshError(
      'NATIVE_SYSCALL',
      "this process's dynamic loader is not in /proc/self/maps",
    );
  }
  return [
    { to: 'node', from: process.execPath },
    { to: 'ld.so', from: loader },
    ...libraries
      .filter((path) => path !== loader)
      .map((path) => ({ to: join('lib', soname(path)), from: path })),
    ...HELPER_SCRIPTS.map((path) => ({ to: path, from: installedPath(path) })),
  ];
}

/** The name under which programs ask for a library: without the minor version. */
function soname(path: string): string {
  return basename(path).replace(/(\.so\.\d+)\..*$/, '$1');
}

/** Makes the folder beside the plugin complete; returns true when it had to. Any other one goes once the link has moved. */
export async function installHelper(binDir: string): Promise<boolean> {
  const files = await helperFiles();
  const link = join(binDir, HELPER_LINK);
  const name = `.${HELPER_LINK}-${await digestOf(files)}`;
  if ((await target(link)) === name && (await isComplete(join(binDir, name), files))) {
    await removeFolders(binDir, name);
    return false;
  }
  const fresh = temporaryName(join(binDir, name));
  try {
    for (const { to, from } of files) {
      await mkdir(dirname(join(fresh, to)), { recursive: true, mode: 0o755 });
      await copyFile(from, join(fresh, to));
    }
    await writeFile(join(fresh, 'package.json'), '{"type":"module"}\n');
    await rm(join(binDir, name), { recursive: true, force: true });
    await rename(fresh, join(binDir, name));
    await symlink(name, `${fresh}.link`);
    await rename(`${fresh}.link`, link);
  } catch (error) {
    await rm(fresh, { recursive: true, force: true });
    throw error;
  }
  await removeFolders(binDir, name);
  return true;
}

/** Removes the folder. Idempotent. */
export async function removeHelper(binDir: string): Promise<void> {
  await rm(join(binDir, HELPER_LINK), { force: true });
  await removeFolders(binDir, null);
}

/** Removes all folders but one, also what an agent that was killed while it copied has left. */
async function removeFolders(binDir: string, kept: string | null): Promise<void> {
  for (const name of (await ifExists(readdir(binDir))) ?? []) {
    if (name === kept || !name.startsWith(`.${HELPER_LINK}-`)) continue;
    await rm(join(binDir, name), { recursive: true, force: true });
  }
}

async function target(link: string): Promise<string | null> {
  try {
    return await readlink(link);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'EINVAL') return null;
    throw error;
  }
}

/** Names the content without reading Node's hundred megabytes. */
async function digestOf(files: readonly HelperFile[]): Promise<string> {
  const hash = createHash('sha256');
  for (const { to, from } of files) {
    const { size, mtimeMs } = await stat(from);
    hash.update(`${to}\0${size}\0${mtimeMs}\0`);
    if (to.endsWith('.ts')) hash.update(await readFile(from));
  }
  return hash.digest('hex').slice(0, 16);
}

async function isComplete(folder: string, files: readonly HelperFile[]): Promise<boolean> {
  for (const { to, from } of files) {
    const [there, wanted] = await Promise.all([ifExists(stat(join(folder, to))), stat(from)]);
    if (there?.size !== wanted.size) return false;
  }
  return true;
}
