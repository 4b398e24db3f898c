import type { Command } from 'commander';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { askCertificates, askStatus } from '../../local-mesh/mesh-client.ts';
import type { MeshPaths } from '../../local-mesh/mesh-paths.ts';
import { expiryLine, firstExpiry } from '../first-expiry.ts';
import { fromEachNode } from '../get/nodes.ts';
import { heldLine, readHeld } from '../held-removals.ts';
import type { HeldSummary } from '../held-removals.ts';
import { withMeshBus } from '../mesh-bus.ts';
import { statusLines } from '../status-lines.ts';
import { meshOption, outputOption, write, writeJson } from '../output.ts';
import type { CommonOptions } from '../output.ts';
import { openMesh } from '../running-mesh.ts';

/** Longest wait for Redis: the status of a mesh without it must not take long. */
const STATE_TIMEOUT_MS = 1_000;

/** Adds `weft status`. */
export function register(program: Command): void {
  program
    .command('status')
    .description('nodes, actors and Redis of a local mesh, and whether it is ready')
    .addOption(meshOption())
    .addOption(outputOption())
    .action(status);
}

async function status(options: CommonOptions): Promise<void> {
  const mesh = await openMesh(options.mesh);
  const answer = await askStatus(mesh.paths);
  const [held, certificates] = await Promise.all([
    heldRemovals(mesh.paths),
    fromEachNode(mesh, 'the node proxy', (node) => askCertificates(mesh.paths, node)),
  ]);
  const expiry = firstExpiry(certificates.lines, Date.now());
  if (options.output === 'json') {
    await writeJson({ ...answer, heldRemovals: held, firstExpiry: expiry });
    return;
  }
  const more = [...(expiry === null ? [] : [expiryLine(expiry)]), ...heldLines(held)];
  await write(
    `${[...statusLines(answer), ...(more.length === 0 ? [] : ['', ...more])].join('\n')}\n`,
  );
}

/** Reads the held removals; a text says why they are unknown. */
async function heldRemovals(paths: MeshPaths): Promise<HeldSummary | null | string> {
  try {
    return await withMeshBus(paths, readHeld, STATE_TIMEOUT_MS);
  } catch (error) {
    if (error instanceof MeshError) return error.message;
    throw error;
  }
}

function heldLines(held: HeldSummary | null | string): string[] {
  if (held === null) return [];
  return [typeof held === 'string' ? `held removals are unknown: ${held}` : heldLine(held)];
}
