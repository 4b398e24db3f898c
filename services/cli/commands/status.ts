import type { Command } from 'commander';
import type { Bus } from '../../../lib/bus/redis-bus.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { askCertificates, askStatus, localServers } from '../../local-mesh/mesh-client.ts';
import type { MeshPaths } from '../../local-mesh/mesh-paths.ts';
import { expiryLine, firstExpiry } from '../first-expiry.ts';
import { heldLine, readHeld } from '../held-removals.ts';
import type { HeldSummary } from '../held-removals.ts';
import { fromEachNode } from '../mesh.ts';
import { withMeshBus } from '../mesh-bus.ts';
import { onDemandLine, readOnDemandNames } from '../on-demand-names.ts';
import { statusLines } from '../status-lines.ts';
import { isCluster } from '../open-mesh.ts';
import { outputOption, readsMesh, writeResult } from '../output.ts';
import type { CommonOptions } from '../output.ts';
import { openMesh } from '../running-mesh.ts';

/** Longest wait for Redis: the status of a mesh without it must not take long. */
const STATE_TIMEOUT_MS = 1_000;

/** Adds `weft status`. */
export function register(command: Command): void {
  readsMesh(command).addOption(outputOption()).action(status);
}

async function status(options: CommonOptions): Promise<void> {
  if (await isCluster(options)) {
    await clusterStatus(options);
    return;
  }
  const { paths, plan } = await openMesh(options.mesh);
  const answer = await askStatus(paths);
  const servers = localServers(paths);
  const nodes = plan.nodes.map(({ name }) => name);
  const [followed, certificates] = await Promise.all([
    followedState(paths),
    fromEachNode({ nodes }, 'the node proxy', (node) => askCertificates(servers, node)),
  ]);
  const expiry = firstExpiry(certificates.lines, Date.now());
  const state =
    typeof followed === 'string'
      ? { heldRemovals: followed, onDemandNames: followed }
      : { heldRemovals: followed.held, onDemandNames: followed.names };
  const more = [...(expiry === null ? [] : [expiryLine(expiry)]), ...followedLines(followed)];
  await writeResult(options, { ...answer, ...state, firstExpiry: expiry }, [
    ...statusLines(answer),
    ...(more.length === 0 ? [] : ['', ...more]),
  ]);
}

async function clusterStatus(options: CommonOptions): Promise<void> {
  const [{ withClusterMesh }, { clusterStatusLines, readClusterStatus }] = await Promise.all([
    import('../cluster/cluster-mesh.ts'),
    import('../cluster/cluster-status.ts'),
  ]);
  const answer = await withClusterMesh(options, (mesh) => readClusterStatus(mesh, Date.now()));
  await writeResult(options, answer, clusterStatusLines(answer));
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
