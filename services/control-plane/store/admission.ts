/** Completes an object before it is stored with identity, times, addresses and status, or refuses it. Pure. */
import { isDeepStrictEqual } from 'node:util';
import { isNamespaced, keyOf, namespaceOf } from '../manifests/kinds.ts';
import type { Gateway, KubeObject, Pod } from '../manifests/kinds.ts';
import { policyConditions } from '../policy/conditions.ts';
import type { PolicyOptions } from '../policy/authorization-policy.ts';
import { allocateClusterIps, allocateEntryAddresses } from './address-allocation.ts';
import type { AddressRanges } from './address-allocation.ts';
import { FieldRefusal } from '../manifests/rejection.ts';
import type { StateView } from './state.ts';

/** Settings and sources of admission. */
export interface AdmissionContext {
  readonly ranges: AddressRanges;
  readonly policies: PolicyOptions;
  /** True when the nodes' enrolments decide the redirection annotation; false takes it from the manifests. */
  readonly ownsRedirection: boolean;
  /** RFC 3339. */
  readonly now: string;
  readonly newUid: () => string;
  /** Namespaces that always exist: the default of manifests, and the mesh's root. */
  readonly fixedNamespaces: readonly string[];
}

/** The annotation of pods that their node serves (docs/spec/istiod-ambient.md §1.1). */
export const REDIRECTION_ANNOTATION = 'ambient.istio.io/redirection';

/**
 * The object as it will be stored. Fields that the server owns are kept or made, never taken from the manifest. Returns
 * the stored object itself when nothing changes. Throws {@link FieldRefusal}.
 */
export function admit(view: StateView, object: KubeObject, context: AdmissionContext): KubeObject {
  const existing = view.get(keyOf(object))?.object ?? null;
  const identified = withIdentity(object, existing, context);
  const next = withOwnFields(view, identified, existing, context);
  if (existing === null) return next;
  if (isDeepStrictEqual(next, existing)) return existing;
  const generation = existing.metadata.generation ?? 1;
  const specChanged = !isDeepStrictEqual(specOf(next), specOf(existing));
  return {
    ...next,
    metadata: { ...next.metadata, generation: specChanged ? generation + 1 : generation },
  };
}

function withIdentity(
  object: KubeObject,
  existing: KubeObject | null,
  context: AdmissionContext,
): KubeObject {
  const given = object.metadata;
  const metadata = {
    name: given.name,
    ...(isNamespaced(object.kind) ? { namespace: namespaceOf(object) } : {}),
    uid: existing?.metadata.uid ?? context.newUid(),
    creationTimestamp: existing?.metadata.creationTimestamp ?? context.now,
    generation: existing?.metadata.generation ?? 1,
    ...(given.generateName === undefined ? {} : { generateName: given.generateName }),
    ...(given.labels === undefined ? {} : { labels: given.labels }),
    ...(given.annotations === undefined ? {} : { annotations: given.annotations }),
    ...(given.ownerReferences === undefined ? {} : { ownerReferences: given.ownerReferences }),
  };
  const { status: _given, ...rest } = object as KubeObject & { status?: unknown };
  const status = existing === null ? undefined : statusOf(existing);
  return { ...rest, metadata, ...(status === undefined ? {} : { status }) } as KubeObject;
}

function withOwnFields(
  view: StateView,
  object: KubeObject,
  existing: KubeObject | null,
  context: AdmissionContext,
): KubeObject {
  switch (object.kind) {
    case 'Pod':
      return admitPod(object, existing as Pod | null, context);
    case 'Service':
      return allocateClusterIps(view, object, existing as typeof object | null, context.ranges);
    case 'ServiceEntry':
      return allocateEntryAddresses(view, object, context.ranges);
    case 'Gateway':
      return admitGateway(object);
    case 'AuthorizationPolicy':
      return {
        ...object,
        status: {
          ...object.status,
          conditions: policyConditions(
            object,
            context.policies,
            (existing as typeof object | null) ?? null,
            context.now,
          ),
        },
      };
    default:
      return object;
  }
}

/** The addresses that a Gateway asks for are those it has: no controller of manifests assigns others. */
function admitGateway(gateway: Gateway): Gateway {
  const { addresses: _before, ...status } = gateway.status ?? {};
  const { addresses } = gateway.spec;
  return addresses === undefined
    ? { ...gateway, status }
    : { ...gateway, status: { ...status, addresses } };
}

function admitPod(pod: Pod, existing: Pod | null, context: AdmissionContext): Pod {
  const { serviceAccount, ...given } = pod.spec;
  const serviceAccountName = given.serviceAccountName ?? serviceAccount ?? 'default';
  const named = { ...given, serviceAccountName };
  // A pod is bound to a node once, here or by the scheduler; a manifest without a node leaves the binding alone.
  const nodeName = given.nodeName ?? existing?.spec.nodeName;
  const spec = nodeName === undefined ? named : { ...named, nodeName };
  if (existing !== null) {
    const bound =
      existing.spec.nodeName === undefined && nodeName !== undefined
        ? { ...existing.spec, nodeName }
        : existing.spec;
    if (!isDeepStrictEqual(spec, bound)) {
      throw new FieldRefusal(
        firstDifference('spec', spec, bound),
        'a pod cannot be changed while it exists, delete it first',
      );
    }
  }
  const status = pod.status ?? { phase: 'Pending' as const };
  if (!context.ownsRedirection) return { ...pod, spec, status };
  const { [REDIRECTION_ANNOTATION]: _given, ...annotations } = pod.metadata.annotations ?? {};
  const kept = existing?.metadata.annotations?.[REDIRECTION_ANNOTATION];
  const merged =
    kept === undefined ? annotations : { ...annotations, [REDIRECTION_ANNOTATION]: kept };
  const { annotations: _replaced, ...metadata } = pod.metadata;
  return {
    ...pod,
    spec,
    status,
    metadata: { ...metadata, ...(Object.keys(merged).length === 0 ? {} : { annotations: merged }) },
  };
}

/** The path of the first field in which two values differ. */
function firstDifference(path: string, left: unknown, right: unknown): string {
  if (!isRecord(left) || !isRecord(right)) return path;
  for (const key of new Set([...Object.keys(left), ...Object.keys(right)])) {
    if (!isDeepStrictEqual(left[key], right[key])) {
      const inside = Array.isArray(left) ? `${path}[${key}]` : `${path}.${key}`;
      return firstDifference(inside, left[key], right[key]);
    }
  }
  return path;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

function specOf(object: KubeObject): unknown {
  return 'spec' in object ? object.spec : undefined;
}

function statusOf(object: KubeObject): unknown {
  return 'status' in object ? object.status : undefined;
}
