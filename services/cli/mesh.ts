/** The mesh that a command reads: a local one, or one on a cluster. Commands know no other difference. */
import type { QueueCounts, TableName } from '../../lib/bus/contract.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { UsageError } from '../../lib/errors/usage-error.ts';
import { isCode } from '../../lib/kubernetes/status.ts';
import type { ExplainRequest, ExplainResult } from '../../lib/policy/explain.ts';
import type { AdminServers, EnrolmentLine } from '../local-mesh/mesh-client.ts';
import type { PodLine } from '../local-mesh/supervisor-api.ts';
import type { RunningMesh } from './running-mesh.ts';

/** The lines, and a warning for each missing part. */
export interface Found<Line> {
  readonly lines: readonly Line[];
  readonly warnings: readonly string[];
}

/** Rows of a table by key. */
export type Rows = ReadonlyMap<string, Uint8Array>;

/** A mesh to read. Its calls throw MeshErrors that name the missing process or right. */
export interface Mesh {
  /** Nodes with roles of the mesh, sorted. */
  readonly nodes: readonly string[];
  /** False where Istio enrols the pods. */
  readonly hasAgents: boolean;
  readonly servers: AdminServers;
  /** The running pods, of some namespaces or of all. */
  pods(namespaces?: readonly string[]): Promise<readonly PodLine[]>;
  /** The pods of a node that are in the mesh, are to be in it, or leave it. */
  enrolments(node: string): Promise<readonly Pick<EnrolmentLine, 'podUid' | 'state'>[]>;
  /** Reads tables of the mesh's state. */
  tables<Name extends TableName>(names: readonly Name[]): Promise<Readonly<Record<Name, Rows>>>;
  queues(): Promise<Found<QueueCounts>>;
  /** Throws ROUTE_UNKNOWN_WORKLOAD when a name is unknown. */
  explain(request: ExplainRequest): Promise<ExplainResult>;
  /** Null for a mesh on a cluster. */
  readonly local: RunningMesh | null;
}

/** The nodes that `--node` names: one, or all. Throws UsageError for an unknown one. */
export function chosenNodes(
  { nodes }: Pick<Mesh, 'nodes'>,
  node: string | undefined,
): readonly string[] {
  if (node === undefined) return nodes;
  if (nodes.includes(node)) return [node];
  throw new UsageError(`--node must be one of ${nodes.join(', ')}, got ${node}`);
}

/** The answers of all nodes; a node without an answer becomes a warning. Throws KUBERNETES_REFUSED, which is so for every node. */
export async function fromEachNode<Line>(
  { nodes }: Pick<Mesh, 'nodes'>,
  who: string,
  question: (node: string) => Promise<readonly Line[]>,
): Promise<Found<Line>> {
  const warnings: string[] = [];
  const lists = await Promise.all(
    nodes.map(async (name) => {
      try {
        return await question(name);
      } catch (error) {
        if (isCode(error, 'KUBERNETES_REFUSED')) throw error;
        warnings.push(`${who} of ${name} is away, its part is missing: ${errorText(error)}`);
        return [];
      }
    }),
  );
  return { lines: lists.flat(), warnings };
}
