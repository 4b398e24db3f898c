import type { Command } from 'commander';
import type { Bus } from '../../../lib/bus/redis-bus.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { askCertificates, askStatus } from '../../local-mesh/mesh-client.ts';
import type { MeshPaths } from '../../local-mesh/mesh-paths.ts';
import { expiryLine, firstExpiry } from '../first-expiry.ts';
import { fromEachNode } from '../get/nodes.ts';
import { heldLine, readHeld } from '../held-removals.ts';
import type { HeldSummary } from '../held-removals.ts';
import { withMeshBus } from '../mesh-bus.ts';
import { onDemandLine, readOnDemandNames } from '../on-demand-names.ts';
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
  const [followed, certificates] = await Promise.all([
    followedState(mesh.paths),
    fromEachNode(mesh, 'the node proxy', (node) => askCertificates(mesh.paths, node)),
  ]);
  const expiry = firstExpiry(certificates.lines, Date.now());
  if (options.output === 'json') {
    const state =
      typeof followed === 'string'
        ? { heldRemovals: followed, onDemandNames: followed }
        : { heldRemovals: followed.held, onDemandNames: followed.names };
    await writeJson({ ...answer, ...state, firstExpiry: expiry });
    return;
  }
  const more = [...(expiry === null ? [] : [expiryLine(expiry)]), ...followedLines(followed)];
  await write(
    `${[...statusLines(answer), ...(more.length === 0 ? [] : ['', ...more])].join('\n')}\n`,
  );
}

/** The state of the mesh in Redis, beyond what it holds. */
interface FollowedState {
  readonly held: HeldSummary | null;
  readonly names: readonly string[] | null;
}

/** Reads the held removals and the names on demand; a text says why they are unknown. */
async function followedState(paths: MeshPaths): Promise<FollowedState | string> {
  try {
    return await withMeshBus(paths, readFollowed, STATE_TIMEOUT_MS);
  } catch (error) {
    if (error instanceof MeshError) return error.message;
    throw error;
  }
}

async function readFollowed(bus: Bus): Promise<FollowedState> {
  return { held: await readHeld(bus), names: await readOnDemandNames(bus) };
}

function followedLines(followed: FollowedState | string): string[] {
  if (typeof followed === 'string') return [`held removals are unknown: ${followed}`];
  const { held, names } = followed;
  return [
    ...(held === null ? [] : [heldLine(held)]),
    ...(names === null ? [] : [onDemandLine(names)]),
  ];
}
