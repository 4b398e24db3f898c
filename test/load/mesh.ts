/** Defines the loaded mesh: processes of this machine, or containers. */
import { TestMesh } from '../support/mesh.ts';
import type { LoadPod } from './messages.ts';

/** The size of the mesh. */
export interface MeshSize {
  readonly nodes: number;
  /** Enrolled pods on every node. */
  readonly pods: number;
  readonly proxies: number;
  /** Listener threads of each proxy. */
  readonly threads: number;
}

/** A pod and its node. */
export interface PlacedPod extends LoadPod {
  readonly node: string;
}

/** The parts of a mesh that the load needs. */
export interface LoadMesh {
  /** Lists the pods for the load. */
  pods(): Promise<readonly PlacedPod[]>;
  /** Lists the processes of all node proxies. */
  proxyPids(): Promise<readonly number[]>;
  down(): Promise<void>;
}

/** Brings up a local mesh of the given size. */
export async function localMesh({ nodes, pods, proxies, threads }: MeshSize): Promise<LoadMesh> {
  const mesh = await TestMesh.up({
    manifests: new URL('manifests', import.meta.url).pathname,
    arguments: ['--nodes', `${nodes}`, '--pods', `${pods}`, '--proxies', `${proxies}`],
    environment: { ZTUNNEL_WORKER_THREADS: String(threads) },
    upTimeout: '600s',
  });
  return {
    pods: async () =>
      (await mesh.pods())
        .filter(({ namespace }) => namespace === 'load')
        .map(({ node, netns, ip }) => ({
          node,
          ip,
          netns: netns.startsWith('/') ? netns : `/run/netns/${netns}`,
        })),
    proxyPids: async () =>
      (await mesh.actors()).filter(({ name }) => name === 'node-proxy').map(({ pid }) => pid),
    down: () => mesh.down(),
  };
}
