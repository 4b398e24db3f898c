/** Removes everything of a mesh. Finds it by the mesh's names, so no record of an earlier process is needed. */
import { readFile, readdir, realpath, rm } from 'node:fs/promises';
import { ifExists } from '../../lib/files/atomic-file.ts';
import { endProcesses } from './processes.ts';
import type { MeshPaths } from './mesh-paths.ts';
import { NETNS_DIR, netnsPath } from './namespaces.ts';
import { ipBatch, runCommand } from './run-command.ts';

/** Time between SIGTERM and SIGKILL for what is left in the namespaces. */
const GRACE_MS = 1_000;

/** Counts of the removed things. */
export interface CleanupReport {
  readonly processes: number;
  readonly namespaces: number;
  readonly files: boolean;
}

/**
 * Ends every process inside the mesh's namespaces and removes the namespaces (with their links and rules), its
 * mounts and its run directory. Succeeds when nothing is left. Throws NETNS_UNAVAILABLE when the system refuses.
 */
export async function cleanUp(paths: MeshPaths): Promise<CleanupReport> {
  const names = await meshNamespaces(paths.mesh);
  const processes = await endProcesses('net', names.map(netnsPath), GRACE_MS);
  const files = (await ifExists(readdir(paths.root))) !== null;
  if (files) await unmountBelow(await realpath(paths.root));
  await ipBatch(
    null,
    names.map((name) => `netns del ${name}`),
  );
  await rm(paths.root, { recursive: true, force: true });
  return { processes, namespaces: names.length, files };
}

/** The network namespaces of a mesh. Mesh names hold no dash, so a prefix belongs to a single mesh. */
export async function meshNamespaces(mesh: string): Promise<string[]> {
  const names = (await ifExists(readdir(NETNS_DIR))) ?? [];
  return names.filter((name) => name.startsWith(`${mesh}-`)).sort();
}

/** Unmounts everything below a directory (its real path), innermost first. Handles paths that are mounted twice. */
async function unmountBelow(directory: string): Promise<void> {
  const table = await readFile('/proc/self/mountinfo', 'utf8');
  const points = table
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '')
    .map((point) =>
      point.replaceAll(/\\(\d{3})/g, (_, octal: string) =>
        String.fromCharCode(Number.parseInt(octal, 8)),
      ),
    )
    .filter((point) => point.startsWith(`${directory}/`));
  for (const point of points.reverse()) await runCommand('umount', ['-l', point]);
}
