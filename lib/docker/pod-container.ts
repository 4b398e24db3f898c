/** Maps containers to pods. Pure. */
import { canonicalIp } from '../net/address.ts';
import type { ContainerDetails, ContainerSummary } from './engine-view.ts';

/** `namespace/name` of the pod whose network this container holds. */
const POD_LABEL = 'weft.io/pod';
/** The node the pod is on, where one engine has the pods of several. */
const NODE_LABEL = 'weft.io/node';
/** Service account of a pod that no manifest describes. */
const ACCOUNT_LABEL = 'weft.io/service-account';
/** `true` on a container that only holds the network while others join it. */
const PAUSE_LABEL = 'weft.io/pause';

/** The pod that a container claims to be: `namespace/name`, and its node. */
export interface PodClaim {
  readonly key: string;
  readonly node: string;
}

/** A container that holds a pod's network. */
export type PodSandboxContainer = NonNullable<ReturnType<typeof sandboxOf>>;

/** Containers with this label are to be in the mesh. One that is no pod is logged. */
export const MODE_LABEL = 'istio.io/dataplane-mode';
/** Networks that are not the container's own. */
const FOREIGN_NETWORK = /^(?:host$|container:)/;

const POD_NAME = /^[a-z0-9]([-a-z0-9.]*[a-z0-9])?\/[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/;

/**
 * The pod that a container claims to be, on `node` unless its label names another. A text names the fault in its labels or network; null
 * means that it claims none.
 */
export function claimOf(
  container: {
    readonly Labels: ContainerSummary['Labels'] | null;
    readonly HostConfig: { readonly NetworkMode: string };
  },
  node: string | null,
): PodClaim | string | null {
  const labels = container.Labels ?? {};
  const key = labels[POD_LABEL];
  const on = labels[NODE_LABEL] || node;
  if (key === undefined) {
    const wants = labels[MODE_LABEL] === 'ambient';
    return wants ? `label ${MODE_LABEL} needs ${POD_LABEL}, namespace/name` : null;
  }
  if (!POD_NAME.test(key))
    return `label ${POD_LABEL} is not namespace/name: ${JSON.stringify(key)}`;
  if (on === null) return `label ${NODE_LABEL} is missing`;
  const { NetworkMode: network } = container.HostConfig;
  if (FOREIGN_NETWORK.test(network)) return `network ${network} is not the container's own`;
  return { key, node: on };
}

/** The facts about a pod's container; null when it has stopped or has no address yet. */
export function sandboxOf(
  claim: PodClaim,
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
    runtime: details.HostConfig.Runtime ?? null,
    ...labelFacts(own.Labels ?? {}),
    /** The container in which commands of the pod run: the first that joined, or this one. */
    application: (first ?? own).Id,
  };
}

/** The facts about a pod that its container's labels tell. */
export function labelFacts(labels: Readonly<Record<string, string>>) {
  return { labels: podLabels(labels), account: labels[ACCOUNT_LABEL] ?? 'default' };
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
