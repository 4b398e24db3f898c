/** Questions to the pods of a cluster, and through them. */
import { present } from '../../../lib/errors/assert.ts';
import type { AppAnswer } from './app.ts';
import type { TestCluster } from './cluster.ts';

/** A pod as the API server has it. */
export interface ClusterPod {
  readonly metadata: {
    readonly name: string;
    readonly deletionTimestamp?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  readonly spec: {
    readonly nodeName?: string;
    readonly containers: readonly { readonly image: string }[];
  };
  readonly status: {
    readonly podIPs: readonly { readonly ip: string }[];
    readonly conditions?: readonly { readonly type: string; readonly status: string }[];
    readonly containerStatuses?: readonly {
      readonly containerID: string;
      readonly started: boolean;
      readonly state: {
        readonly running?: { readonly startedAt: string };
        readonly waiting?: unknown;
      };
      readonly lastState: { readonly terminated?: { readonly finishedAt: string } };
    }[];
  };
}

/** The pods of an application, in the order of their nodes. */
export async function podsOf(
  cluster: TestCluster,
  namespace: string,
  name: string,
  label = 'app',
): Promise<readonly ClusterPod[]> {
  const answer = (await cluster.objects.admin.get(`/api/v1/namespaces/${namespace}/pods`, {
    query: { labelSelector: `${label}=${name}` },
  })) as { readonly items: readonly ClusterPod[] };
  return [...answer.items].sort((a, b) =>
    (a.spec.nodeName ?? '').localeCompare(b.spec.nodeName ?? ''),
  );
}

/** Whether a pod is ready. */
export function isReady({ status }: ClusterPod): boolean {
  return (
    status.conditions?.some(({ type, status: value }) => type === 'Ready' && value === 'True') ===
    true
  );
}

/** Whether a proxy serves a pod. */
export function isEnrolled({ metadata }: ClusterPod): boolean {
  return metadata.annotations?.['ambient.istio.io/redirection'] === 'enabled';
}

/** One pod of an application for each node; none that ends. */
export async function podPerNode(
  cluster: TestCluster,
  namespace: string,
  name: string,
): Promise<readonly ClusterPod[]> {
  const pods = await podsOf(cluster, namespace, name);
  return cluster.network.nodes.map((node) =>
    present(
      pods.find(
        ({ spec, metadata }) =>
          spec.nodeName === node.name && metadata.deletionTimestamp === undefined,
      ),
      `a pod of ${name} on ${node.name}`,
    ),
  );
}

/** Waits until an application is rolled out. */
export async function rolledOut(
  cluster: TestCluster,
  namespace: string,
  workload: string,
): Promise<void> {
  await cluster.kubectl('-n', namespace, 'rollout', 'status', workload, '--timeout=180s');
}

/** Asks a URL from a pod; rejects with curl's complaint. */
export async function ask(
  cluster: TestCluster,
  from: { readonly namespace: string; readonly pod: ClusterPod },
  url: string,
): Promise<AppAnswer> {
  const { namespace, pod } = from;
  const curl = ['curl', '-gfsS', '-m', '30', url];
  const said = await cluster.kubectl('-n', namespace, 'exec', pod.metadata.name, '--', ...curl);
  return JSON.parse(said) as AppAnswer;
}

/** A URL of a server by its address. */
export function urlOf(ip: string, port: number): string {
  return `http://${ip.includes(':') ? `[${ip}]` : ip}:${port}/`;
}
