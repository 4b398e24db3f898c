/** Decides, when the agent ends, whether it leaves its node for good (docs/spec/cni.md §3.7). */
import { beforeAbort } from '../../../lib/async/time-limit.ts';
import type { Clock } from '../../../lib/clock/clock.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import { resourcePath } from '../../../lib/kubernetes/resource.ts';
import { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import type { ConnectionSource } from '../../../lib/kubernetes/connection.ts';
import { findConnection } from '../../../lib/kubernetes/connection.ts';
import { isCode } from '../../../lib/kubernetes/status.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { DEPARTURE_FORBIDDEN_MS, DEPARTURE_READ_MS, DEPARTURE_RETRY_MS } from '../limits.ts';

/** The agent's own DaemonSet. */
export const AGENT_DAEMON_SET = 'weft-node-agent';

const UNAUTHORIZED = 401;
const FORBIDDEN = 403;

type Json = Readonly<Record<string, unknown>>;

/** Whether the agent leaves its node, and why. */
export interface Departure {
  readonly leaves: boolean;
  readonly reason: string;
}

/** The agent's own DaemonSet and node. */
export interface AgentPlace {
  readonly namespace: string;
  readonly daemonSet: string;
  readonly node: string;
}

/** Where an agent that ends asks about its place. */
export interface DepartureSource {
  readonly connection: ConnectionSource;
  /** The namespace of the agent's own pod. */
  readonly namespace: string;
}

/**
 * Returns whether the agent leaves the node for good; without a source it never does. Call it while the process still has its
 * rights.
 */
export async function leavesNode(
  source: DepartureSource | null,
  node: string,
  { clock, log }: { readonly clock: Clock; readonly log: Pick<Logger, 'info'> },
): Promise<boolean> {
  if (source === null) return false;
  const { connection, namespace } = source;
  const client = new KubernetesClient(await findConnection(connection), {
    clock,
    userAgent: 'weft-node-agent',
  });
  try {
    const place = { namespace, daemonSet: AGENT_DAEMON_SET, node };
    const { leaves, reason } = await readDeparture(client, place, clock);
    log.info({ leaves, reason }, 'agent.departure-decided');
    return leaves;
  } finally {
    client.close();
  }
}

/**
 * Reads DaemonSet and node. The agent stays when they cannot be read: pods of the mesh wait then, and no pod loses its
 * protection. An account that no longer exists counts as the end, as in istio-cni: it goes with the DaemonSet, and a plugin that
 * nobody serves would keep every pod from starting. A removal takes the account's rights first and the API server remembers
 * its token for a while, so a refusal for want of rights is asked about again.
 */
export async function readDeparture(
  client: KubernetesClient,
  place: AgentPlace,
  clock: Clock,
): Promise<Departure> {
  const endMs = clock.monotonic() + DEPARTURE_FORBIDDEN_MS;
  for (;;) {
    const { status, ...departure } = await readOnce(client, place);
    if (status !== FORBIDDEN || clock.monotonic() >= endMs) return departure;
    await clock.sleep(DEPARTURE_RETRY_MS);
  }
}

async function readOnce(
  client: KubernetesClient,
  { namespace, daemonSet, node }: AgentPlace,
): Promise<Departure & { readonly status: unknown }> {
  const signal = AbortSignal.timeout(DEPARTURE_READ_MS);
  const read = (group: string, plural: string, name: string): Promise<unknown> =>
    client.get(
      resourcePath(
        { group, versions: ['v1'], plural, namespaced: group !== '' },
        group === '' ? { name } : { name, namespace },
      ),
      { signal },
    );
  try {
    const reading = Promise.all([read('apps', 'daemonsets', daemonSet), read('', 'nodes', node)]);
    if (!(await beforeAbort(signal, reading))) {
      reading.catch(() => undefined);
      return { leaves: false, reason: 'the API server does not answer', status: null };
    }
    return { ...decideDeparture(...((await reading) as [Json, Json])), status: 200 };
  } catch (error) {
    const status = isCode(error, 'KUBERNETES_REFUSED') ? error.detail['status'] : null;
    const leaves = status === UNAUTHORIZED || isCode(error, 'KUBERNETES_NOT_FOUND');
    return { leaves, reason: errorText(error), status };
  }
}

/** Decides by the objects of the API. Pure. */
export function decideDeparture(daemonSet: Json, node: Json): Departure {
  if (part(daemonSet, 'metadata')['deletionTimestamp'] !== undefined) {
    return { leaves: true, reason: 'the DaemonSet is being deleted' };
  }
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
