/** Decides, when the agent ends, whether it leaves its node for good (docs/spec/cni.md §3.7). */
import { beforeAbort } from '../../../lib/async/time-limit.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import { resourcePath } from '../../../lib/kubernetes/resource.ts';
import type { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import { isCode } from '../../../lib/kubernetes/status.ts';
import { DEPARTURE_READ_MS } from '../limits.ts';

/** The agent's own DaemonSet. */
export const AGENT_DAEMON_SET = 'weft-node-agent';

type Json = Readonly<Record<string, unknown>>;

/** Whether the agent leaves its node, and why. */
export interface Departure {
  readonly leaves: boolean;
  /** Whether the API server told. */
  readonly told: boolean;
  readonly reason: string;
}

/** The agent's own DaemonSet and node. */
export interface AgentPlace {
  readonly namespace: string;
  readonly daemonSet: string;
  readonly node: string;
}

/**
 * Reads DaemonSet and node. The agent stays when they cannot be read: pods of the mesh wait then, and no pod loses its
 * protection. That holds for a refused token (401), too: a token ends with its pod and with the key that signed it, while the
 * mesh goes on.
 */
export async function readDeparture(
  client: KubernetesClient,
  { namespace, daemonSet, node }: AgentPlace,
): Promise<Departure> {
  const signal = AbortSignal.timeout(DEPARTURE_READ_MS);
  const read = (group: string, plural: string, name: string): Promise<Json | null> =>
    ifThere(
      client.get(
        resourcePath(
          { group, versions: ['v1'], plural, namespaced: group !== '' },
          group === '' ? { name } : { name, namespace },
        ),
        { signal },
      ),
    );
  try {
    const reading = Promise.all([read('apps', 'daemonsets', daemonSet), read('', 'nodes', node)]);
    if (!(await beforeAbort(signal, reading))) {
      reading.catch(() => undefined);
      return { leaves: false, told: false, reason: 'the API server does not answer' };
    }
    return { ...decideDeparture(...(await reading)), told: true };
  } catch (error) {
    const reason = `the API server does not tell: ${errorText(error)}`;
    return { leaves: false, told: false, reason };
  }
}

/** Settles like `request`, with null where the API server itself says that the object does not exist: others answer 404, too. */
async function ifThere(request: Promise<unknown>): Promise<Json | null> {
  try {
    return (await request) as Json;
  } catch (error) {
    if (isCode(error, 'KUBERNETES_NOT_FOUND') && error.detail['reason'] === 'NotFound') return null;
    throw error;
  }
}

/**
 * Decides by the objects of the API; null = it does not exist. A node that is not registered is about to be, or its pods end.
 * Pure.
 */
export function decideDeparture(
  daemonSet: Json | null,
  node: Json | null,
): Omit<Departure, 'told'> {
  if (daemonSet === null) return { leaves: true, reason: 'the DaemonSet is gone' };
  if (part(daemonSet, 'metadata')['deletionTimestamp'] !== undefined) {
    return { leaves: true, reason: 'the DaemonSet is being deleted' };
  }
  if (node === null) return { leaves: false, reason: 'the node is not registered' };
  const spec = part(daemonSet, 'spec', 'template', 'spec');
  const labels = part(node, 'metadata', 'labels');
  const selected = Object.entries(part(spec, 'nodeSelector')).every(
    ([key, value]) => labels[key] === value,
  );
  if (!selected) return { leaves: true, reason: 'the node no longer matches the nodeSelector' };
  const required = part(
    spec,
    'affinity',
    'nodeAffinity',
    'requiredDuringSchedulingIgnoredDuringExecution',
  )['nodeSelectorTerms'];
  const name = part(node, 'metadata')['name'];
  if (
    Array.isArray(required) &&
    !required.some((term) => matchesTerm(term as Json, labels, name))
  ) {
    return { leaves: true, reason: 'the node no longer matches the node affinity' };
  }
  return { leaves: false, reason: 'the DaemonSet stays' };
}

interface Requirement {
  readonly key: string;
  readonly operator: string;
  readonly values?: readonly string[];
}

/** A term without requirements matches no node. */
function matchesTerm(term: Json, labels: Json, name: unknown): boolean {
  const expressions = (term['matchExpressions'] ?? []) as readonly Requirement[];
  const fields = (term['matchFields'] ?? []) as readonly Requirement[];
  return (
    expressions.length + fields.length > 0 &&
    expressions.every((one) => meets(one, labels[one.key])) &&
    fields.every((one) => meets(one, one.key === 'metadata.name' ? name : undefined))
  );
}

function meets({ operator, values = [] }: Requirement, value: unknown): boolean {
  const listed = values.some((one) => one === value);
  switch (operator) {
    case 'In':
      return listed;
    case 'NotIn':
      return !listed;
    case 'Exists':
      return value !== undefined;
    case 'DoesNotExist':
      return value === undefined;
    case 'Gt':
      return value !== undefined && Number(value) > Number(values[0]);
    case 'Lt':
      return value !== undefined && Number(value) < Number(values[0]);
    default:
      // The API server admits no other operator.
      return false;
  }
}

function part(object: unknown, ...path: readonly string[]): Json {
  const value = path.reduce<unknown>((at, key) => (at as Json | undefined)?.[key], object);
  return typeof value === 'object' && value !== null ? (value as Json) : {};
}
