/** Says which pods are served: those of the node agent, or the one pod of dedicated mode. */
import type { Clock } from '../../../lib/clock/clock.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import { openNetns } from '../../../lib/linux/netns.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { ZdsProxy } from '../../../lib/zds/proxy.ts';
import type { ZdsProxyHandler } from '../../../lib/zds/proxy.ts';
import type { WorkloadName } from '../state-thread/protocol.ts';
import type { PodManager } from './pod-manager.ts';
import { SharedSession } from './shared-session.ts';

/** Path of the network namespace that the process runs in. */
export const OWN_NETNS = '/proc/self/ns/net';

/** Names the pods to serve. */
export interface PodSource {
  /** Number of proxies that this process hands its pods to; null or absent where it does not. */
  readonly siblings?: number | null;
  /** Begins to name pods. Call it once. */
  start(): void;
  /** The process drains: the source names no more pods, and still tells of those that leave. */
  drain(): void;
  /** Ends the source; resolves when work under way is done. Idempotent. */
  close(): Promise<void>;
}

/** Settings of {@link nodeAgentPods}. */
export interface NodeAgentSettings {
  readonly zdsPath: string;
  /** Socket by which the proxies of the node share a session; null = each has its own. */
  readonly siblingsPath: string | null;
  readonly group: number;
}

/** The pods that the node agent names over ZDS (docs/spec/inpod.md §2). Calls `onSession` when a session begins. */
export function nodeAgentPods(
  { zdsPath, siblingsPath, group }: NodeAgentSettings,
  pods: PodManager,
  { clock, log }: { readonly clock: Clock; readonly log: Logger },
  onSession: () => void,
): PodSource {
  const handler: ZdsProxyHandler = {
    sessionStarted: () => {
      onSession();
      pods.sessionOpened();
    },
    add: (uid, info, netnsFd) => pods.add({ uid, ...info }, netnsFd),
    del: (uid) => pods.delete(uid),
    snapshot: async (uids) => pods.snapshot(uids),
    sessionEnded: () => pods.sessionClosed(),
  };
  return siblingsPath === null
    ? new ZdsProxy({ path: zdsPath, hello: { group, state: 'serving' }, clock, log }, handler)
    : new SharedSession({ path: siblingsPath, agentPath: zdsPath, group, clock, log }, handler);
}

/**
 * The one pod of dedicated mode: the network namespace the process runs in. No agent can take it away. `start` throws
 * NATIVE_SYSCALL when the namespace cannot be opened.
 */
export function dedicatedPod(
  workload: WorkloadName,
  pods: Pick<PodManager, 'add' | 'sessionOpened' | 'snapshot'>,
  log: Logger,
): PodSource {
  const uid = `dedicated/${workload.namespace}/${workload.name}`;
  let done = Promise.resolve();
  const serve = async (netnsFd: number): Promise<void> => {
    pods.sessionOpened();
    try {
      await pods.add({ uid, ...workload }, netnsFd);
    } catch (error) {
      // The pod stays pending: the process is not ready, and the manager tries again.
      log.debug({ uid, error: errorText(error) }, 'dedicated.start-failed');
    }
    // Complete the list only now: while it is empty, a complete list would mean that all pods are served.
    pods.snapshot(new Set([uid]));
  };
  return {
    start: () => void (done = serve(openNetns(OWN_NETNS))),
    drain: () => undefined,
    close: () => done,
  };
}
