/** Maps containers to pods. Pure. */
import { canonicalIp } from '../../lib/net/address.ts';
import type { PodRecord } from '../../lib/state/pod-record.ts';
import type { NamespaceObject, PodObject } from '../local-mesh/objects.ts';
import { podRecord } from '../local-mesh/pod-plan.ts';
import type { ContainerDetails, ContainerSummary } from './engine.ts';

/** `namespace/name` of the pod whose network this container holds. */
const POD_LABEL = 'weft.io/pod';
/** The simulated node the pod is on. */
const NODE_LABEL = 'weft.io/node';
/** Service account of a pod that no manifest describes. */
const ACCOUNT_LABEL = 'weft.io/service-account';
/** `true` on a container that only holds the network while others join it. */
const PAUSE_LABEL = 'weft.io/pause';

/** A container that holds a pod's network. */
export type PodSandboxContainer = NonNullable<ReturnType<typeof sandboxOf>>;

const POD_NAME = /^[a-z0-9]([-a-z0-9.]*[a-z0-9])?\/[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/;

/** The pod that a container claims to be. A text names the fault in its labels; null means that it claims none. */
export function claimOf(
  container: ContainerSummary,
): { key: string; node: string } | string | null {
  const key = container.Labels?.[POD_LABEL];
  const node = container.Labels?.[NODE_LABEL];
  if (key === undefined) return null;
  if (!POD_NAME.test(key))
    return `label ${POD_LABEL} is not namespace/name: ${JSON.stringify(key)}`;
  if (node === undefined || node === '') return `label ${NODE_LABEL} is missing`;
  return { key, node };
}

/** The facts about a pod's container; null when it has stopped or has no address yet. */
export function sandboxOf(
  claim: { readonly key: string; readonly node: string },
  details: ContainerDetails,
  all: readonly ContainerSummary[],
) {
  const own = all.find(({ Id }) => Id === details.Id);
  const addresses = addressesOf(details);
  if (own === undefined || !details.State.Running || details.State.Pid <= 0) return null;
  if (addresses.length === 0) return null;
  const pause = own.Labels?.[PAUSE_LABEL] === 'true';
  const joined = all.filter(({ HostConfig }) => HostConfig.NetworkMode === `container:${own.Id}`);
  const parts = pause ? joined : [own, ...joined];
  const [first] = parts.toSorted((left, right) => left.Created - right.Created);
  return {
    ...claim,
    id: own.Id,
    pid: details.State.Pid,
    startedAtMs: Date.parse(details.State.StartedAt),
    addresses,
    /** Whether nothing of the pod runs before it is enrolled. */
    pause,
    /** Whether all containers of the pod are up. */
    ready: parts.length > 0 && parts.every(isUp),
    labels: podLabels(own.Labels ?? {}),
    account: own.Labels?.[ACCOUNT_LABEL] ?? 'default',
    /** The container in which commands of the pod run: the first that joined, or this one. */
    application: (first ?? own).Id,
  };
}

function addressesOf({ NetworkSettings }: ContainerDetails): string[] {
  const found = Object.values(NetworkSettings.Networks).flatMap((network) => [
    network.IPAddress ?? '',
    network.GlobalIPv6Address ?? '',
  ]);
  return found.filter((address) => address !== '').map(canonicalIp);
}

/** Reads health from the list's text, such as `Up 4 seconds (health: starting)`. */
function isUp({ State, Status }: ContainerSummary): boolean {
  return State === 'running' && !/\((?:unhealthy|health: starting)\)/.test(Status);
}

/** Labels that are the pod's own, not the engine's, Compose's or ours. */
function podLabels(labels: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(labels).filter(
      ([name]) => !/^(?:com\.docker\.|org\.opencontainers\.|weft\.io\/)/.test(name),
    ),
  );
}

/** The manifest of a pod that has none. */
export function podManifest({
  key,
  node,
  labels,
  account,
}: PodSandboxContainer): Record<string, unknown> {
  const [namespace, name] = key.split('/');
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { namespace, name, labels },
    spec: {
      nodeName: node,
      serviceAccountName: account,
      containers: [{ name: 'main', image: 'container' }],
    },
  };
}

/** The node agent's record of the pod. */
export function recordOf(
  sandbox: PodSandboxContainer,
  pod: PodObject,
  namespace: NamespaceObject | undefined,
): PodRecord {
  const { node, pid, addresses } = sandbox;
  const place = { node, netns: `/proc/${pid}/ns/net`, addresses };
  // A container that holds a pod's network has its own network, even if the manifest says otherwise.
  return { ...podRecord(pod, namespace, place), hostNetwork: false };
}
