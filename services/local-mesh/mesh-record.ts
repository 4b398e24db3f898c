import * as z from 'zod';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { readIfPresent, replaceFile } from '../../lib/files/atomic-file.ts';
import { DEFAULT_MESH } from './mesh-paths.ts';
import type { MeshPaths } from './mesh-paths.ts';
import { isRunning } from './processes.ts';
import { planMesh } from './topology.ts';
import type { MeshPlan } from './topology.ts';

const recordSchema = z.looseObject({
  mesh: z.string(),
  supervisor: z.strictObject({ pid: z.int(), startTime: z.string() }),
  nodes: z.int().min(1),
  external: z.array(z.string()),
  startedAt: z.string(),
});

/** The record that a mesh writes into its run directory; a crash leaves it behind. */
export type MeshRecord = z.infer<typeof recordSchema>;

/** Reads the record; null when there is none or it is broken. The clean-up finds a mesh without a record by its names. */
export async function readRecord(paths: MeshPaths): Promise<MeshRecord | null> {
  const text = await readIfPresent(paths.record);
  if (text === null) return null;
  try {
    return recordSchema.parse(JSON.parse(text));
  } catch {
    // A crash cut the write short.
    return null;
  }
}

/** Writes the record. */
export async function writeRecord(paths: MeshPaths, record: MeshRecord): Promise<void> {
  await replaceFile(paths.record, `${JSON.stringify(record, null, 2)}\n`, 0o644);
}

/** The record of a mesh whose supervisor runs, else null. */
export async function liveRecord(paths: MeshPaths): Promise<MeshRecord | null> {
  const record = await readRecord(paths);
  return record !== null && (await isRunning(record.supervisor)) ? record : null;
}

/** The record and plan of the running mesh. Throws STATE_UNAVAILABLE that says how to start one. */
export async function requireMesh(
  paths: MeshPaths,
): Promise<{ readonly record: MeshRecord; readonly plan: MeshPlan }> {
  const record = await liveRecord(paths);
  if (record === null) {
    throw new MeshError(
      'STATE_UNAVAILABLE',
      `mesh ${paths.mesh} is not running (run directory ${paths.root}); start it with: ${startCommand(paths.mesh)}`,
    );
  }
  return { record, plan: planMesh(paths.mesh, record.nodes) };
}

function startCommand(mesh: string): string {
  return mesh === DEFAULT_MESH ? 'weft up' : `weft up --mesh ${mesh}`;
}
