/** Takes the taint of unready nodes away once the DaemonSets that enrol pods are ready there. */
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { isCode } from '../../../lib/kubernetes/status.ts';
import { resourcePath } from '../../../lib/kubernetes/resource.ts';
import type { ResourceType } from '../../../lib/kubernetes/resource.ts';
import { keyOf, kindResources, namespaceOf } from '../manifests/kinds.ts';
import type { KubeNode, KubeObject, Pod } from '../manifests/kinds.ts';
import { NOT_READY_TAINT } from '../manifests/reduce.ts';
import { isReady } from '../mapping/pod.ts';
import type { LeaderDeps } from './status-writer.ts';

const { group, version, plural, namespaced } = kindResources.Node;
const NODES: ResourceType = { group, versions: [version], plural, namespaced };

/** The DaemonSets that a node must have ready. */
export interface NodeDaemonSets {
  readonly namespace: string;
  readonly names: readonly string[];
}

/** The label of a pod that runs all roles of its node, so that it stands for all of the DaemonSets. */
const COMPONENT = 'app.kubernetes.io/component';
const ALL_ROLES = 'node';

/** A taint as the API server has it; all fields are compared. */
interface Taint {
  readonly key?: string;
}

/** Removes taints while it runs. Operators register nodes with them; nobody puts one back. */
export class NodeTaints {
  readonly #deps: LeaderDeps;
  readonly #daemonSets: NodeDaemonSets;
  /** Ready pods of the DaemonSets: by node, the DaemonSets that each stands for by the key of the pod. */
  readonly #ready = new Map<string, Map<string, readonly string[]>>();

  constructor(daemonSets: NodeDaemonSets, deps: LeaderDeps) {
    this.#daemonSets = daemonSets;
    this.#deps = deps;
  }

  /** Looks at all nodes, and at each that changes. The result ends that. */
  start(): () => void {
    const { source } = this.#deps;
    for (const pod of source.objects.ofKind('Pod')) this.#note(null, pod);
    const end = source.onCommit((changes) => {
      for (const { before, after } of changes) {
        if (isPod(before) || isPod(after)) {
          for (const node of this.#note(asPod(before), asPod(after))) this.#look(node);
        } else if (after?.kind === 'Node') this.#look(after.metadata.name);
      }
    });
    for (const { metadata } of source.objects.ofKind('Node')) this.#look(metadata.name);
    return end;
  }

  /** Keeps the ready pods; returns the nodes that they concern. */
  #note(before: Pod | null, after: Pod | null): readonly string[] {
    const nodes: string[] = [];
    for (const [pod, present] of [
      [before, false],
      [after, true],
    ] as const) {
      const node = pod?.spec.nodeName;
      const daemonSets = pod === null ? [] : this.#daemonSetsOf(pod);
      if (pod === null || node === undefined || daemonSets.length === 0) continue;
      const ready = this.#ready.get(node) ?? new Map<string, readonly string[]>();
      if (present && isReady(pod)) ready.set(keyOf(pod), daemonSets);
      else ready.delete(keyOf(pod));
      if (ready.size === 0) this.#ready.delete(node);
      else this.#ready.set(node, ready);
      nodes.push(node);
    }
    return nodes;
  }

  #daemonSetsOf(pod: Pod): readonly string[] {
    const { namespace, names } = this.#daemonSets;
    if (namespaceOf(pod) !== namespace) return [];
    const owner = pod.metadata.ownerReferences?.find(({ kind }) => kind === 'DaemonSet');
    if (owner === undefined || !names.includes(owner.name)) return [];
    return pod.metadata.labels?.[COMPONENT] === ALL_ROLES ? names : [owner.name];
  }

  #look(node: string): void {
    if (this.#decide(node) === null) return;
    this.#deps.writes.offer(`taint ${node}`, (signal) => this.#write(node, signal));
  }

  /** The taints of the node as last seen, when one of them is to go; else null. */
  #decide(name: string): readonly Taint[] | null {
    const node = this.#deps.source.objects.object('Node', '', name);
    const taints = node === undefined ? [] : taintsOf(node);
    if (!taints.some(isOurs)) return null;
    const ready = new Set([...(this.#ready.get(name)?.values() ?? [])].flat());
    return this.#daemonSets.names.every((daemonSet) => ready.has(daemonSet)) ? taints : null;
  }

  /**
   * Taints have many writers, and are a list without keys in the API. So the patch names the list that was seen: the API server
   * refuses it when the list has changed since, also by another leader.
   */
  async #write(node: string, signal: AbortSignal): Promise<void> {
    const seen = this.#decide(node);
    if (seen === null) return;
    const { client, log } = this.#deps;
    const value = seen.filter((taint) => !isOurs(taint));
    try {
      await client.request({
        method: 'PATCH',
        path: resourcePath(NODES, { name: node }),
        contentType: 'application/json-patch+json',
        body: [
          { op: 'test', path: '/spec/taints', value: seen },
          { op: 'replace', path: '/spec/taints', value },
        ],
        signal,
      });
      log.info({ node, taint: NOT_READY_TAINT }, 'node.taint-removed');
    } catch (error) {
      if (isCode(error, 'KUBERNETES_NOT_FOUND')) return;
      if (!isCode(error, 'KUBERNETES_INVALID')) throw error;
      // Another list by now. The queue tries again, with the list that is known then.
      throw new MeshError('KUBERNETES_CONFLICT', error.message, { cause: error });
    }
  }
}

function isOurs({ key }: Taint): boolean {
  return key === NOT_READY_TAINT;
}

function taintsOf({ spec }: KubeNode): readonly Taint[] {
  return (spec?.['taints'] ?? []) as readonly Taint[];
}

function isPod(object: KubeObject | null): boolean {
  return object?.kind === 'Pod';
}

function asPod(object: KubeObject | null): Pod | null {
  return object?.kind === 'Pod' ? object : null;
}
