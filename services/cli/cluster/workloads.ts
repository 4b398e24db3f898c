/** Workloads of a cluster, as far as the command line looks at them. */
import * as z from 'zod';
import type { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import { readList } from '../../../lib/kubernetes/read-list.ts';

/** The label of everything of Weft. */
export const PART_OF = 'app.kubernetes.io/part-of';
/** The label with a role's name, `weft-<role>`. */
export const ROLE_LABEL = 'app.kubernetes.io/name';
/** The label with the version. */
export const VERSION_LABEL = 'app.kubernetes.io/version';

const texts = z.record(z.string(), z.string()).default({});
const counts = z.looseObject({
  replicas: z.int().optional(),
  updatedReplicas: z.int().optional(),
  readyReplicas: z.int().optional(),
  desiredNumberScheduled: z.int().optional(),
  updatedNumberScheduled: z.int().optional(),
  numberReady: z.int().optional(),
});
const workloadSchema = z.looseObject({
  metadata: z.looseObject({ name: z.string(), namespace: z.string(), labels: texts }),
  spec: z.looseObject({
    replicas: z.int().optional(),
    template: z.looseObject({
      metadata: z.looseObject({ labels: texts }),
      spec: z.looseObject({
        serviceAccountName: z.string().optional(),
        containers: z.array(
          z.looseObject({
            name: z.string(),
            env: z
              .array(z.looseObject({ name: z.string(), value: z.string().optional() }))
              .default([]),
          }),
        ),
      }),
    }),
  }),
  status: counts.default({}),
});

/** The kinds that are read. */
export const WORKLOAD_KINDS = ['DaemonSet', 'Deployment', 'StatefulSet'] as const;

/** A workload. */
export interface Workload {
  readonly kind: (typeof WORKLOAD_KINDS)[number];
  readonly namespace: string;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly podLabels: Readonly<Record<string, string>>;
  readonly account: string;
  /** Variables of all containers. */
  readonly env: Readonly<Record<string, string>>;
  readonly desired: number;
  readonly updated: number;
  readonly ready: number;
}

/** Reads the workloads of a namespace, or of all of them. */
export async function readWorkloads(
  client: KubernetesClient,
  namespace: string | null,
): Promise<readonly Workload[]> {
  const place = namespace === null ? '' : `/namespaces/${encodeURIComponent(namespace)}`;
  const lists = await Promise.all(
    WORKLOAD_KINDS.map((kind) =>
      readList(client, `/apis/apps/v1${place}/${kind.toLowerCase()}s`, (object) =>
        workload(kind, object),
      ),
    ),
  );
  return lists.flat();
}

function workload(kind: Workload['kind'], object: unknown): Workload {
  const { metadata, spec, status } = workloadSchema.parse(object);
  const { metadata: pod, spec: pods } = spec.template;
  const env = pods.containers.flatMap((container) => container.env);
  return {
    kind,
    namespace: metadata.namespace,
    name: metadata.name,
    labels: metadata.labels,
    podLabels: pod.labels,
    account: pods.serviceAccountName ?? 'default',
    env: Object.fromEntries(env.map(({ name, value = '' }) => [name, value])),
    desired: kind === 'DaemonSet' ? (status.desiredNumberScheduled ?? 0) : (spec.replicas ?? 1),
    updated: status.updatedNumberScheduled ?? status.updatedReplicas ?? 0,
    ready: status.numberReady ?? status.readyReplicas ?? 0,
  };
}
