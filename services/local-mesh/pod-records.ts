/** The files that tell a node agent of its node's pods (lib/state/pod-record.ts). */
import { randomBytes } from 'node:crypto';
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { PodRecord } from '../../lib/state/pod-record.ts';
import { podRecordsDir } from './mesh-paths.ts';
import type { MeshPaths } from './mesh-paths.ts';

/** Where the record of a pod lies. */
export function podRecordFile(paths: MeshPaths, node: string, uid: string): string {
  return join(podRecordsDir(paths, node), `${uid}.json`);
}

/** Writes or replaces a record; a reader sees the old one or the new one, whole. */
export async function writePodRecord(
  paths: MeshPaths,
  node: string,
  record: PodRecord,
): Promise<void> {
  const path = podRecordFile(paths, node, record.uid);
  await mkdir(podRecordsDir(paths, node), { recursive: true });
  const temporary = `${path}.${randomBytes(4).toString('hex')}`;
  await writeFile(temporary, `${JSON.stringify(record)}\n`, { mode: 0o640 });
  await rename(temporary, path);
}

/** Withdraws a record; one that is not there is fine. */
export async function removePodRecord(paths: MeshPaths, node: string, uid: string): Promise<void> {
  await rm(podRecordFile(paths, node, uid), { force: true });
}
