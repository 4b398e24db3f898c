/** Reduces pods of the API server to what the agent needs. Pure. */
import * as z from 'zod';
import { MeshError } from '../../../lib/errors/mesh-error.ts';

/** The annotation that tells the mesh how far a pod is enrolled: `pending`, `enabled`, or none. */
export const REDIRECTION = 'ambient.istio.io/redirection';

/** A pod of the API server. */
export interface KubernetesPod {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  readonly serviceAccount: string;
  readonly labels: Readonly<Record<string, string>>;
  /** Without {@link REDIRECTION}, which is the agent's own. */
  readonly annotations: Readonly<Record<string, string>>;
  readonly redirection: string | null;
  readonly hostNetwork: boolean;
  readonly addresses: readonly string[];
  /** True when no process of it will run any more. */
  readonly ended: boolean;
  /** When its kubelet saw it, before its sandbox was made; null while it has not. */
  readonly startedAtMs: number | null;
  /** Changes when containers start anew, as they do in a new sandbox with a new namespace. */
  readonly containers: string;
}

const labels = z.record(z.string(), z.string()).default({});
const podSchema = z.object({
  metadata: z.object({
    uid: z.string().min(1),
    namespace: z.string().min(1),
    name: z.string().min(1),
    labels,
    annotations: labels,
  }),
  spec: z.object({
    serviceAccountName: z.string().min(1).default('default'),
    hostNetwork: z.boolean().default(false),
  }),
  status: z
    .object({
      startTime: z.iso.datetime({ offset: true }).optional(),
      phase: z.string().default('Pending'),
      podIP: z.string().optional(),
      podIPs: z.array(z.object({ ip: z.string() })).optional(),
      containerStatuses: z.array(z.object({ containerID: z.string().default('') })).default([]),
    })
    .prefault({}),
});

/** Returns the fields in use. Throws KUBERNETES_INVALID that names the wrong fields. */
export function reducePod(object: unknown): KubernetesPod {
  const parsed = podSchema.safeParse(object);
  if (!parsed.success) {
    const where = parsed.error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`);
    throw new MeshError('KUBERNETES_INVALID', `not a pod: ${where.join('; ')}`);
  }
  const { metadata, spec, status } = parsed.data;
  const { [REDIRECTION]: redirection = null, ...annotations } = metadata.annotations;
  const single = status.podIP === undefined ? [] : [status.podIP];
  return {
    uid: metadata.uid,
    namespace: metadata.namespace,
    name: metadata.name,
    serviceAccount: spec.serviceAccountName,
    labels: metadata.labels,
    annotations,
    redirection,
    hostNetwork: spec.hostNetwork,
    addresses: status.podIPs?.map(({ ip }) => ip) ?? single,
    startedAtMs: status.startTime === undefined ? null : Date.parse(status.startTime),
    ended: status.phase === 'Succeeded' || status.phase === 'Failed',
    containers: status.containerStatuses.map(({ containerID }) => containerID).join(),
  };
}
