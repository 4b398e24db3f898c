/** Applies the reports of the runtime and of the nodes about pods to a draft. Pure. */
import { isDeepStrictEqual } from 'node:util';
import * as z from 'zod';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { canonicalIp } from '../../../lib/net/address.ts';
import { dnsSubdomain } from '../../../lib/kubernetes/label-fields.ts';
import { ipAddress } from '../manifests/fields.ts';
import { objectKey } from '../manifests/kinds.ts';
import type { Pod } from '../manifests/kinds.ts';
import { REDIRECTION_ANNOTATION } from './admission.ts';
import type { Draft } from './state.ts';

/** Body of `PUT /pods/<namespace>/<name>/status`. */
export const podStatusReport = z.strictObject({
  podIPs: z.array(ipAddress).max(16),
  phase: z.enum(['Pending', 'Running', 'Succeeded', 'Failed']),
  ready: z.boolean(),
  uid: z.string().min(1),
  netns: z.string().min(1).optional(),
});

/** See {@link podStatusReport}. */
export type PodStatusReport = z.output<typeof podStatusReport>;

/** Body of `PUT /pods/<namespace>/<name>/binding`: the scheduler's choice of a node. */
export const podBinding = z.strictObject({ uid: z.string().min(1), nodeName: dnsSubdomain });

/** See {@link podBinding}. */
export type PodBinding = z.output<typeof podBinding>;

/** The result of a report: `gone` when there is no such pod, `other` when a pod with another uid has its name. */
export type ReportResult = 'changed' | 'unchanged' | 'gone' | 'other';

/** Sets a pod's status as the runtime reports it. */
export function setPodStatus(
  draft: Draft,
  namespace: string,
  name: string,
  report: PodStatusReport,
  now: string,
): ReportResult {
  const found = podOf(draft, namespace, name);
  if (found === null) return 'gone';
  const { pod, file } = found;
  if (pod.metadata.uid !== report.uid) return 'other';
  const ips = [...new Set(report.podIPs.map(canonicalIp))];
  const status = report.ready ? ('True' as const) : ('False' as const);
  const ready = pod.status?.conditions?.find((condition) => condition.type === 'Ready');
  const others = pod.status?.conditions?.filter((condition) => condition.type !== 'Ready') ?? [];
  const condition =
    ready?.status === status ? ready : { type: 'Ready', status, lastTransitionTime: now };
  const first = ips[0];
  const next: Pod['status'] = {
    phase: report.phase,
    ...(first === undefined ? {} : { podIP: first }),
    podIPs: ips.map((ip) => ({ ip })),
    conditions: [...others, condition],
    ...(report.netns === undefined ? {} : { netns: report.netns }),
  };
  if (isDeepStrictEqual(next, pod.status)) return 'unchanged';
  draft.put({ ...pod, status: next }, file);
  return 'changed';
}

/** Binds a pod to a node. Throws STATE_CONFLICT when the pod is on another node. */
export function bindPod(
  draft: Draft,
  namespace: string,
  name: string,
  { uid, nodeName }: PodBinding,
): ReportResult {
  const found = podOf(draft, namespace, name);
  if (found === null) return 'gone';
  const { pod, file } = found;
  if (pod.metadata.uid !== uid) return 'other';
  const current = pod.spec.nodeName;
  if (current === nodeName) return 'unchanged';
  if (current !== undefined) {
    throw new MeshError('STATE_CONFLICT', `pod ${namespace}/${name} is bound to node ${current}`);
  }
  const metadata = { ...pod.metadata, generation: (pod.metadata.generation ?? 1) + 1 };
  draft.put({ ...pod, metadata, spec: { ...pod.spec, nodeName } }, file);
  return 'changed';
}

/** Sets or clears the mark of a pod that its node serves. A pod with another uid stays unchanged. */
export function setRedirection(
  draft: Draft,
  pod: { readonly namespace: string; readonly name: string; readonly uid: string },
  enabled: boolean,
): ReportResult {
  const found = podOf(draft, pod.namespace, pod.name);
  if (found === null) return 'gone';
  const { pod: current, file } = found;
  if (current.metadata.uid !== pod.uid) return 'other';
  const { [REDIRECTION_ANNOTATION]: before, ...rest } = current.metadata.annotations ?? {};
  if ((before === 'enabled') === enabled) return 'unchanged';
  const annotations = enabled ? { ...rest, [REDIRECTION_ANNOTATION]: 'enabled' } : rest;
  const { annotations: _replaced, ...metadata } = current.metadata;
  const next = Object.keys(annotations).length === 0 ? metadata : { ...metadata, annotations };
  draft.put({ ...current, metadata: next }, file);
  return 'changed';
}

function podOf(
  draft: Draft,
  namespace: string,
  name: string,
): { pod: Pod; file: string | null } | null {
  const stored = draft.get(objectKey('Pod', namespace, name));
  return stored?.object.kind === 'Pod' ? { pod: stored.object, file: stored.file } : null;
}
