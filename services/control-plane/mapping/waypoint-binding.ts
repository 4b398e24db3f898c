/** The waypoint that an object uses, or why it uses none (docs/spec/istiod-ambient.md §1.6). Pure. */
import type { Service } from '../../../lib/state/model.ts';
import { matchesSelector } from '../../../lib/kubernetes/label-selector.ts';
import type { Labels } from '../../../lib/kubernetes/label-selector.ts';
import type { NamespaceFacts } from './namespace-facts.ts';
import type { Waypoint } from './waypoint.ts';

/** Why an object is not bound as its author asked. */
export interface Refusal {
  readonly reason:
    | 'WaypointIsNotReady'
    | 'AttachmentDenied'
    | 'UnsupportedTrafficType'
    | 'CrossNamespaceWaypointForbidden'
    | 'CanaryInvalidWeight'
    | 'CanarySameAsPrimary';
  readonly message: string;
}

/** The result for an object. A refusal beside a waypoint concerns the canary. */
export interface Binding {
  readonly waypoint: Waypoint | null;
  readonly refusal: Refusal | null;
  readonly weighted: Service['weightedWaypoints'];
  /** The value of the label that sends ingress traffic through the waypoint; null without the label. */
  readonly ingress: boolean | null;
}

/** An object that may ask for a waypoint. */
export interface Bindable {
  readonly namespace: string;
  readonly labels: Labels;
  readonly annotations: Labels;
}

/** The facts that a binding depends on. */
export interface BindingSources {
  /** The namespace of the object. */
  readonly facts: NamespaceFacts;
  waypoint(key: string): Waypoint | undefined;
}

const USE = 'istio.io/use-waypoint';
const USE_NAMESPACE = 'istio.io/use-waypoint-namespace';
const CANARY = 'istio.io/use-waypoint-canary';
const CANARY_NAMESPACE = 'istio.io/use-waypoint-canary-namespace';
const CANARY_WEIGHT = 'istio.io/use-waypoint-canary-weight';
const INGRESS = 'istio.io/ingress-use-waypoint';
const MANAGED = 'gateway.istio.io/managed';
const WHOLE = 100;
/** Services of gateways have no waypoint themselves. */
const GATEWAY_CONTROLLERS: ReadonlySet<string> = new Set([
  'istio.io-mesh-controller',
  'istio.io-eastwest-controller',
]);

/** An object without a waypoint. */
export const UNBOUND: Binding = { waypoint: null, refusal: null, weighted: [], ingress: null };

/** The binding of a Service or ServiceEntry. `isPrivate` is true for an entry that only its own namespace sees. */
export function bindService(
  object: Bindable,
  isPrivate: boolean,
  sources: BindingSources,
): Binding {
  if (GATEWAY_CONTROLLERS.has(object.labels[MANAGED] ?? '')) return UNBOUND;
  const found = lookUp(object, sources);
  if (found === null) return UNBOUND;
  const refusal =
    found.refusal ??
    trafficRefusal(found.waypoint, 'service') ??
    privacyRefusal(found.waypoint, object, isPrivate);
  if (refusal !== null || found.waypoint === null) return { ...UNBOUND, refusal };
  const canary = canaryOf(object, found.waypoint, sources);
  const ingress = object.labels[INGRESS] ?? sources.facts.labels[INGRESS];
  return {
    waypoint: found.waypoint,
    refusal: canary.refusal,
    weighted: canary.weighted,
    ingress: ingress === undefined ? null : isTrue(ingress),
  };
}

/** The binding of a pod or WorkloadEntry. A waypoint for services, inherited from the namespace, is no mistake. */
export function bindWorkload(object: Bindable, sources: BindingSources): Binding {
  const found = lookUp(object, sources);
  if (found === null) return UNBOUND;
  const traffic = found.refusal === null ? trafficRefusal(found.waypoint, 'workload') : null;
  if (traffic !== null) {
    return object.labels[USE] === undefined ? UNBOUND : { ...UNBOUND, refusal: traffic };
  }
  return { ...UNBOUND, waypoint: found.waypoint, refusal: found.refusal };
}

interface Found {
  readonly waypoint: Waypoint | null;
  readonly refusal: Refusal | null;
}

/** The waypoint by the object's own label, else by its namespace's; null when neither names one. */
function lookUp(object: Bindable, sources: BindingSources): Found | null {
  const labels = object.labels[USE] === undefined ? sources.facts.labels : object.labels;
  const name = labels[USE];
  if (name === undefined || name === 'none') return null;
  return resolve(`${labels[USE_NAMESPACE] ?? object.namespace}/${name}`, object, sources);
}

function resolve(key: string, { namespace }: Bindable, sources: BindingSources): Found {
  const waypoint = sources.waypoint(key);
  if (waypoint === undefined) {
    return refused('WaypointIsNotReady', `waypoint "${key}" is not ready`);
  }
  if (!allows(waypoint, namespace, sources.facts.labels)) {
    const message = `the listener of waypoint "${key}" does not allow routes from namespace ${namespace}`;
    return refused('AttachmentDenied', message);
  }
  return { waypoint, refusal: null };
}

function allows({ allowedFrom, namespace }: Waypoint, from: string, labels: Labels): boolean {
  switch (allowedFrom.from) {
    case 'All':
      return true;
    case 'Selector':
      return allowedFrom.selector !== null && matchesSelector(allowedFrom.selector, labels);
    case 'None':
      return false;
    default:
      return namespace === from;
  }
}

function trafficRefusal(waypoint: Waypoint | null, wanted: 'service' | 'workload'): Refusal | null {
  if (waypoint === null || waypoint.traffic === wanted || waypoint.traffic === 'all') return null;
  const message = `waypoint "${waypoint.key}" takes traffic of type "${waypoint.traffic}", not "${wanted}"`;
  return { reason: 'UnsupportedTrafficType', message };
}

/** A private entry in another namespace's waypoint would be visible there. */
function privacyRefusal(
  waypoint: Waypoint | null,
  { namespace }: Bindable,
  isPrivate: boolean,
): Refusal | null {
  if (waypoint === null || !isPrivate || waypoint.namespace === namespace) return null;
  const message = `waypoint "${waypoint.key}" is in another namespace, and the entry is visible only in its own`;
  return { reason: 'CrossNamespaceWaypointForbidden', message };
}

function canaryOf(
  object: Bindable,
  primary: Waypoint,
  sources: BindingSources,
): { readonly weighted: Binding['weighted']; readonly refusal: Refusal | null } {
  const none = { weighted: [], refusal: null };
  const inherits = object.labels[USE] === undefined;
  const { facts } = sources;
  const labels = object.labels[CANARY] === undefined && inherits ? facts.labels : object.labels;
  const name = labels[CANARY] ?? '';
  if (name === '' || name === 'none') return none;
  const key = `${labels[CANARY_NAMESPACE] ?? object.namespace}/${name}`;
  if (key === primary.key) {
    return { weighted: [], refusal: canaryRefusal('CanarySameAsPrimary', key, 'is the primary') };
  }
  const weight = canaryWeight(
    object.annotations[CANARY_WEIGHT] ?? (inherits ? facts.annotations[CANARY_WEIGHT] : undefined),
  );
  if (weight === null) {
    const fault = 'needs a weight that is a whole number from 0 to 100';
    return { weighted: [], refusal: canaryRefusal('CanaryInvalidWeight', key, fault) };
  }
  const found = resolve(key, object, sources);
  const refusal = found.refusal ?? trafficRefusal(found.waypoint, 'service');
  if (refusal !== null) return { weighted: [], refusal };
  if (primary.address === null || found.waypoint?.address === null || found.waypoint === null) {
    return none;
  }
  return {
    weighted: [
      { destination: primary.address, weight: WHOLE - weight },
      { destination: found.waypoint.address, weight },
    ],
    refusal: null,
  };
}

function canaryWeight(text: string | undefined): number | null {
  if (text === undefined) return 0;
  const weight = /^\d{1,3}$/.test(text) ? Number(text) : WHOLE + 1;
  return weight > WHOLE ? null : weight;
}

function canaryRefusal(reason: Refusal['reason'], key: string, fault: string): Refusal {
  return { reason, message: `canary waypoint "${key}" ${fault}` };
}

function refused(reason: Refusal['reason'], message: string): Found {
  return { waypoint: null, refusal: { reason, message } };
}

/** The spellings of true that Go's parser takes. */
function isTrue(text: string): boolean {
  return ['1', 't', 'T', 'true', 'TRUE', 'True'].includes(text);
}
