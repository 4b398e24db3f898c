import type { ContainerDetails, EngineView } from './engine-view.ts';
import { claimOf, sandboxOf } from './pod-container.ts';
import type { PodClaim, PodSandboxContainer } from './pod-container.ts';

/** The nodes whose containers are looked for. */
export interface WantedNodes {
  /** Says whether containers of this node are looked for. */
  has(node: string): boolean;
  /** The node of containers that name none; null where each must. */
  readonly unnamed: string | null;
  /** Told why a container that claims to be a pod is none, each time it is found. */
  readonly refused: (container: string, problem: string) => void;
}

/** Finds the running containers that hold pods' networks, by `namespace/name`. Throws STATE_UNAVAILABLE when the engine is away. */
export async function findPods(
  engine: Pick<EngineView, 'list' | 'inspectIfPresent'>,
  nodes: WantedNodes,
): Promise<ReadonlyMap<string, PodSandboxContainer>> {
  const running = await engine.list();
  const claimants: Claimant[] = [];
  for (const container of running) {
    const claim = claimOf(container, nodes.unnamed);
    // The engine may be starting a container that restarts, and would not answer about it before that has succeeded.
    if (claim === null || container.State === 'restarting') continue;
    if (typeof claim === 'string') nodes.refused(container.Id, claim);
    else if (!nodes.has(claim.node)) nodes.refused(container.Id, `no node ${claim.node}`);
    else {
      const details = await engine.inspectIfPresent(container.Id);
      if (details !== null) claimants.push({ claim, details });
    }
  }
  const found = new Map<string, PodSandboxContainer>();
  for (const { claim, details } of claimants.toSorted(byCreation)) {
    const sandbox = sandboxOf(claim, details, running);
    if (sandbox === null) continue;
    if (found.has(claim.key)) nodes.refused(details.Id, `${claim.key} exists already`);
    else found.set(claim.key, sandbox);
  }
  return found;
}

interface Claimant {
  readonly claim: PodClaim;
  readonly details: ContainerDetails;
}

/** When two containers claim a pod, the older one is the pod. The list knows only the second of a creation. */
function byCreation({ details: a }: Claimant, { details: b }: Claimant): number {
  return Date.parse(a.Created) - Date.parse(b.Created) || (a.Id < b.Id ? -1 : 1);
}
