/** Names what is wrong with a node and its pods, from what the proof has read. Pure. */
import type { Exposure, PodState } from '../metrics.ts';
import type { CanaryResult } from './canary.ts';

/** The causes that `weft doctor` names. */
export type Cause =
  | 'missing kernel module'
  | 'conflicting CNI option'
  | 'NetworkPolicy blocks 15008'
  | 'clock skew'
  | 'Redis unreachable'
  | 'API server unreachable'
  | 'stale conflist'
  | 'CNI helper without token'
  | 'missing rule'
  | 'missing listener'
  | 'no proxy'
  | 'plugin not called'
  | 'not enrolled'
  | 'not captured';

/** One thing that is wrong. */
export interface Finding {
  /** `namespace/name` of the pod; null for the node. */
  readonly pod: string | null;
  readonly cause: Cause;
  readonly detail: string;
}

/** A pod of the mesh, as it was read. */
export interface PodFacts {
  readonly pod: string;
  readonly state: PodState;
  readonly exposure: Exposure | null;
  /** Why the last attempt to enrol it failed. */
  readonly reason: string | null;
  /** The differences from the expected rules; null where they could not be read. */
  readonly differences: readonly string[] | null;
  readonly missingPorts: readonly number[];
  /** Null where the pod has no known namespace. */
  readonly canary: CanaryResult | null;
}

/** The node, as it was read. */
export interface NodeFacts {
  readonly proxies: number;
  readonly redisConnected: boolean;
  /** Why this kernel has no conntrack zones. */
  readonly noZones: string | null;
  /** Null without a CNI plugin. */
  readonly cni: {
    /** Why the plugin is not installed. */
    readonly problem: string | null;
    /** Why the plugin's helper cannot judge pods while the agent is away, or soon will not. */
    readonly helper: string | null;
    /** The option of another component that keeps the plugin from being called. */
    readonly conflict: string | null;
    /** Pods that started after the plugin was installed, and that it never asked about. */
    readonly uncalled: readonly string[];
  } | null;
  /** Null without Kubernetes. */
  readonly cluster: {
    readonly problems: readonly string[];
    /** The API server's clock minus this one's; null where it did not answer. */
    readonly skewMs: number | null;
    /** Pods by the NetworkPolicy that keeps tunnels out of them. */
    readonly blocked: readonly { readonly pod: string; readonly policy: string }[];
    /** Options of another CNI under which a mesh does not work. */
    readonly conflicts: readonly string[];
  } | null;
}

/** Certificates and tokens are dated back by a minute at most. */
const MAX_SKEW_MS = 30_000;

/** Words of iptables, ip and the kernel's errors for what the kernel lacks. */
const LACKS_MODULE =
  /missing kernel module|do you need to insmod|can't initialize ip6?tables|No chain\/target\/match by that name|RULE_APPEND failed \(No such file or directory\)|Protocol not supported|not supported by (?:the )?kernel/i;

/** Returns what is wrong with the node, the causes before what follows from them. */
export function nodeFindings(facts: NodeFacts): readonly Finding[] {
  const { proxies, redisConnected, noZones, cni, cluster } = facts;
  const found: Finding[] = [];
  const add = (cause: Cause, detail: string, pod: string | null = null): void => {
    found.push({ pod, cause, detail });
  };
  if (noZones !== null) add('missing kernel module', `no conntrack zones: ${noZones}`);
  if (!redisConnected) add('Redis unreachable', 'the agent has no connection to Redis');
  if (proxies === 0) add('no proxy', 'no node proxy is connected, so new pods are blocked');
  if (cni !== null) {
    if (cni.conflict !== null) add('conflicting CNI option', cni.conflict);
    else if (cni.problem !== null) add('stale conflist', cni.problem);
    if (cni.helper !== null) add('CNI helper without token', cni.helper);
    for (const pod of cni.uncalled) {
      const detail =
        'the runtime started the pod without calling weft-cni: does it read this list?';
      add('plugin not called', detail, pod);
    }
  }
  if (cluster !== null) {
    for (const conflict of cluster.conflicts) add('conflicting CNI option', conflict);
    for (const problem of cluster.problems) add('API server unreachable', problem);
    if (cluster.skewMs !== null && Math.abs(cluster.skewMs) > MAX_SKEW_MS) {
      const seconds = Math.round(-cluster.skewMs / 1_000);
      add('clock skew', `this node's clock is ${seconds} s ahead of the API server's`);
    }
    for (const { pod, policy } of cluster.blocked) {
      add('NetworkPolicy blocks 15008', `${policy} lets no TCP in to 15008 from any peer`, pod);
    }
  }
  return found;
}

/** Returns what is wrong with a pod. */
export function podFindings(facts: PodFacts): readonly Finding[] {
  const { pod, state, exposure, reason, differences, missingPorts, canary } = facts;
  const found: Finding[] = [];
  const add = (cause: Cause, detail: string): void => {
    found.push({ pod, cause, detail });
  };
  const exposed = exposure === null ? '' : exposure === 'cut' ? ' (cut off)' : ' (open)';
  if (reason !== null && LACKS_MODULE.test(reason)) add('missing kernel module', reason + exposed);
  else if (differences === null || reason !== null || state !== 'enabled') {
    const unread = differences === null ? 'its rules cannot be read' : `it is ${state}`;
    add('not enrolled', (reason ?? unread) + exposed);
  }
  for (const difference of differences ?? []) add('missing rule', difference + exposed);
  if (differences?.length === 0 && missingPorts.length > 0) {
    add('missing listener', `nothing listens at ${missingPorts.join(', ')}`);
  }
  // A pod without a route has nothing to send, and what is missing was told above.
  if (found.length === 0 && canary !== null && canary !== 'captured' && canary !== 'no-route') {
    add('not captured', `a connection to nobody's address was ${canary.replaceAll('-', ' ')}`);
  }
  return found;
}
