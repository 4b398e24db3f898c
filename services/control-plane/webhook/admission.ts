/** The answer of the admission webhook. Pure. */
import * as z from 'zod';
import { isKind, kindResources } from '../manifests/kinds.ts';
import { UNKNOWN_FIELD, validateObject } from '../manifests/validate.ts';

/** The part of an AdmissionReview that is read (admission.k8s.io/v1). */
const reviewSchema = z.looseObject({
  apiVersion: z.literal('admission.k8s.io/v1'),
  kind: z.literal('AdmissionReview'),
  request: z.looseObject({
    uid: z.string(),
    kind: z.looseObject({ group: z.string(), version: z.string(), kind: z.string() }),
    name: z.string().optional(),
    operation: z.string(),
    object: z.looseObject({}).nullish(),
  }),
});

/** An AdmissionReview that answers one. */
export interface AdmissionAnswer {
  readonly apiVersion: 'admission.k8s.io/v1';
  readonly kind: 'AdmissionReview';
  readonly response: {
    readonly uid: string;
    readonly allowed: boolean;
    readonly status?: { readonly code: number; readonly reason: string; readonly message: string };
    readonly warnings?: readonly string[];
  };
}

/** Kubernetes shows at most this much of all warnings. */
const MAX_WARNINGS = 10;
const MAX_PROBLEMS = 20;

/**
 * Returns the answer: an object with a fault is refused, with every field and reason. A field that the control plane does not know
 * is only a warning, because the API server's definition may be newer. Other kinds are allowed. Null for a body that is no
 * AdmissionReview.
 */
export function admit(body: unknown): AdmissionAnswer | null {
  const parsed = reviewSchema.safeParse(body);
  if (!parsed.success) return null;
  const { uid, kind: type, object, operation, name } = parsed.data.request;
  const answer = (response: Omit<AdmissionAnswer['response'], 'uid'>): AdmissionAnswer => ({
    apiVersion: 'admission.k8s.io/v1',
    kind: 'AdmissionReview',
    response: { uid, ...response },
  });
  const { kind, group } = type;
  const known = isKind(kind) && kindResources[kind].group === group;
  if (!known || object === null || object === undefined || operation === 'DELETE') {
    return answer({ allowed: true });
  }
  const { problems } = validateObject(
    kind,
    judged(object, group, kindResources[kind].version, name),
  );
  const [unknown, faults] = [
    problems.filter(({ reason }) => reason === UNKNOWN_FIELD),
    problems.filter(({ reason }) => reason !== UNKNOWN_FIELD),
  ];
  const line = ({ path, reason }: (typeof problems)[number]): string => `${path}: ${reason}`;
  const warnings =
    unknown.length === 0 ? {} : { warnings: unknown.slice(0, MAX_WARNINGS).map(line) };
  if (faults.length === 0) return answer({ allowed: true, ...warnings });
  const message = faults.slice(0, MAX_PROBLEMS).map(line).join('; ');
  return answer({
    allowed: false,
    status: { code: 422, reason: 'Invalid', message: `${kind} is invalid: ${message}` },
    ...warnings,
  });
}

/** The object without the parts that only the API server writes. A generated name is not known yet. */
function judged(
  object: Readonly<Record<string, unknown>>,
  group: string,
  version: string,
  requested: string | undefined,
): unknown {
  const { status: _status, metadata, ...rest } = object;
  const given = (metadata ?? {}) as Readonly<Record<string, unknown>>;
  const { namespace, labels, annotations } = given;
  const name = [given['name'], requested].find((text) => typeof text === 'string' && text !== '');
  return {
    ...rest,
    apiVersion: group === '' ? version : `${group}/${version}`,
    metadata: {
      name: name ?? 'generated',
      ...(namespace === undefined ? {} : { namespace }),
      ...(labels === undefined ? {} : { labels }),
      ...(annotations === undefined ? {} : { annotations }),
    },
  };
}
