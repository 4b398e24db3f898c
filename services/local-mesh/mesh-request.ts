/** Turns the options of `weft up` into the mesh that the supervisor brings up. */
import type { Environment } from '../../lib/config/env.ts';
import { UsageError } from '../../lib/errors/usage-error.ts';
import { installedPath } from '../../lib/files/installation.ts';
import { readManifests } from './manifests.ts';
import type { ManifestDocument } from './manifests.ts';
import type { MeshPaths } from './mesh-paths.ts';
import { parseRole } from './roles.ts';
import type { MeshRequest } from './supervisor.ts';
import { MAX_NODES, MAX_PODS_PER_NODE, planMesh } from './topology.ts';
import type { MeshPlan } from './topology.ts';

/** The default manifests. */
export const DEFAULT_MANIFESTS = installedPath('infra/local');
const DEFAULT_NODES = 2;
/** A few generations of this many proxies stay below the connection limit of a node agent (lib/zds/limits.ts). */
const MAX_PROXIES_PER_NODE = 8;
/** Namespace of the pods of `--pods`. */
const LOAD_NAMESPACE = 'load';

/** The options of `weft up` that describe the mesh, as text. */
export interface UpOptions {
  readonly nodes?: string;
  readonly pods?: string;
  readonly manifests?: string;
  readonly proxies?: string;
  readonly external?: string;
}

/** Reads manifests and plans the mesh. Throws UsageError or MANIFEST_INVALID. */
export async function planRequest(
  options: UpOptions,
  paths: MeshPaths,
  environment: Environment,
): Promise<MeshRequest> {
  const nodes = parseNodeCount(options.nodes);
  const extra = count('--pods', options.pods, 0, 0, MAX_PODS_PER_NODE - 64);
  const proxies = count('--proxies', options.proxies, 1, 1, MAX_PROXIES_PER_NODE);
  const plan = planMesh(paths.mesh, nodes);
  const external = (options.external ?? '')
    .split(',')
    .filter((text) => text !== '')
    .map((text) => parseRole(text, plan));
  const manifests = await readManifests(options.manifests ?? DEFAULT_MANIFESTS, () =>
    Promise.resolve(''),
  );
  return {
    plan,
    paths,
    external,
    environment,
    proxies,
    documents: [...manifests, ...loadPods(plan, extra)],
  };
}

/** Parses `--nodes`. Throws UsageError. */
export function parseNodeCount(text: string | undefined): number {
  return count('--nodes', text, DEFAULT_NODES, 1, MAX_NODES);
}

function count(
  option: string,
  text: string | undefined,
  fallback: number,
  min: number,
  max: number,
): number {
  if (text === undefined) return fallback;
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < min || value > max) {
    throw new UsageError(`${option} must be a whole number from ${min} to ${max}, got ${text}`);
  }
  return value;
}

/** `perNode` enrolled pods on every node, all behind the service `load/load`. */
function loadPods(plan: MeshPlan, perNode: number): ManifestDocument[] {
  if (perNode === 0) return [];
  const namespace = LOAD_NAMESPACE;
  const labels = { app: 'load' };
  const objects: unknown[] = [
    {
      apiVersion: 'v1',
      kind: 'Namespace',
      metadata: { name: namespace, labels: { 'istio.io/dataplane-mode': 'ambient' } },
    },
    { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'load', namespace } },
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: 'load', namespace },
      spec: { selector: labels, ports: [{ name: 'http', port: 80, targetPort: 8080 }] },
    },
    ...plan.nodes.flatMap((node) =>
      Array.from({ length: perNode }, (_, index) => ({
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name: `load-${node.index}-${index + 1}`, namespace, labels },
        spec: {
          nodeName: node.name,
          serviceAccountName: 'load',
          containers: [{ name: 'server', image: 'weft/sample' }],
        },
      })),
    ),
  ];
  return objects.map((object, index) => ({ source: '--pods', index, object }));
}

/** Number of pods in the documents. */
export function podCount(documents: readonly ManifestDocument[]): number {
  return documents.filter(({ object }) => (object as { kind?: unknown }).kind === 'Pod').length;
}
