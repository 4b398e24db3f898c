/** Pods of Weft on a cluster, and the roles that run in them. */
import * as z from 'zod';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { NODE_GROUP } from '../../local-mesh/actors.ts';
import type { ActorName } from '../../local-mesh/actors.ts';
import type { ClusterAccess } from './access.ts';
import { readList } from '../../../lib/kubernetes/read-list.ts';
import { PART_OF, ROLE_LABEL, VERSION_LABEL } from './workloads.ts';

/** The container that hosts all roles of a node in the profile compact. */
const ALL_ROLES = 'node';

const podSchema = z.looseObject({
  metadata: z.looseObject({
    name: z.string(),
    labels: z.record(z.string(), z.string()),
    creationTimestamp: z.string(),
    deletionTimestamp: z.string().optional(),
    ownerReferences: z.array(z.looseObject({ kind: z.string() })).default([]),
  }),
  spec: z.looseObject({
    nodeName: z.string().optional(),
    containers: z.array(z.looseObject({ name: z.string() })),
  }),
  status: z.looseObject({
    phase: z.string().default('Pending'),
    containerStatuses: z
      .array(
        z.looseObject({
          ready: z.boolean(),
          restartCount: z.int(),
          state: z
            .looseObject({
              waiting: z
                .looseObject({ reason: z.string().default(''), message: z.string().default('') })
                .optional(),
            })
            .default({}),
        }),
      )
      .default([]),
  }),
});

/** A pod of Weft. */
export interface WeftPod {
  readonly name: string;
  /** The name of its workload without `weft-`. */
  readonly role: string;
  /** Null while no node has it. */
  readonly node: string | null;
  readonly version: string;
  /** Whether its workload has one on each node. */
  readonly perNode: boolean;
  readonly running: boolean;
  readonly ready: boolean;
  readonly leaving: boolean;
  /** Why a container does not run. */
  readonly waits: string | null;
  readonly restarts: number;
  readonly createdAt: string;
  readonly containers: readonly string[];
}

/** Reads the pods of the release. Throws STATE_UNAVAILABLE when there are none. */
export async function readWeftPods({
  client,
  namespace,
}: ClusterAccess): Promise<readonly WeftPod[]> {
  const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods`;
  const pods = await readList(client, path, weftPod, { labelSelector: `${PART_OF}=weft` });
  if (pods.length > 0) return pods;
  throw new MeshError(
    'STATE_UNAVAILABLE',
    `no pod of Weft is in namespace ${namespace}; --namespace names that of the release; see: weft check`,
  );
}

function weftPod(object: unknown): WeftPod {
  const { metadata, spec, status } = podSchema.parse(object);
  const { labels } = metadata;
  const waiting = status.containerStatuses.find(({ state }) => state.waiting !== undefined)?.state
    .waiting;
  return {
    name: metadata.name,
    role: (labels[ROLE_LABEL] ?? '').replace(/^weft-/, ''),
    node: spec.nodeName ?? null,
    version: labels[VERSION_LABEL] ?? 'unknown',
    perNode: metadata.ownerReferences.some(({ kind }) => kind === 'DaemonSet'),
    running: status.phase === 'Running',
    ready:
      status.containerStatuses.length > 0 && status.containerStatuses.every(({ ready }) => ready),
    leaving: metadata.deletionTimestamp !== undefined,
    waits: waiting === undefined ? null : `${waiting.reason} ${waiting.message}`.trim(),
    restarts: status.containerStatuses.reduce((sum, { restartCount }) => sum + restartCount, 0),
    createdAt: metadata.creationTimestamp,
    containers: spec.containers.map(({ name }) => name),
  };
}

/** Whether a role runs in the pod. */
export function hosts({ role, containers }: WeftPod, wanted: ActorName): boolean {
  if (role === wanted) return true;
  return containers.includes(ALL_ROLES) && NODE_GROUP.some((name) => name === wanted);
}

/** The running pods of a role, the one that answers for it first: ready ones that stay, the newest first. */
export function podsOfRole(
  pods: readonly WeftPod[],
  role: ActorName,
  node: string | null,
): readonly WeftPod[] {
  const rank = ({ ready, leaving }: WeftPod): number => (leaving ? 0 : ready ? 2 : 1);
  return pods
    .filter((pod) => pod.running && hosts(pod, role) && (node === null || pod.node === node))
    .sort((a, b) => rank(b) - rank(a) || Date.parse(b.createdAt) - Date.parse(a.createdAt));
}

/** Nodes with roles of a node, sorted. */
export function nodesOf(pods: readonly WeftPod[]): readonly string[] {
  const nodes = pods
    .filter((pod) => hosts(pod, 'node-proxy') || hosts(pod, 'node-agent'))
    .flatMap(({ node }) => (node === null ? [] : [node]));
  return [...new Set(nodes)].sort();
}
