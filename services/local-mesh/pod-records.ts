/** The files that tell a node agent the pods of its node (lib/state/pod-record.ts). */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { replaceFile } from '../../lib/files/atomic-file.ts';
import type { PodRecord } from '../../lib/state/pod-record.ts';
import { podRecordsDir } from './mesh-paths.ts';
import type { MeshPaths } from './mesh-paths.ts';

/** The path of a pod's record. */
export function podRecordFile(paths: MeshPaths, node: string, uid: string): string {
  return join(podRecordsDir(paths, node), `${uid}.json`);
}

/** Writes or replaces a record atomically. */
export async function writePodRecord(
  paths: MeshPaths,
  node: string,
  record: PodRecord,
): Promise<void> {
  const path = podRecordFile(paths, node, record.uid);
  await replaceFile(path, `${JSON.stringify(record)}\n`, 0o640);
}

/** Removes a record, if there is one. */
export async function removePodRecord(paths: MeshPaths, node: string, uid: string): Promise<void> {
  await rm(podRecordFile(paths, node, uid), { force: true });
}
