import type { Clock } from '../../../lib/clock/clock.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { ZdsProxy } from '../../../lib/zds/proxy.ts';
import type { PodManager } from './pod-manager.ts';
import type { PodSource } from './pod-source.ts';

/** The pods the node agent names over ZDS (docs/spec/inpod.md §2). `onSession` is told of each session that begins. */
export function nodeAgentPods(
  { zdsPath, group }: { readonly zdsPath: string; readonly group: number },
  pods: PodManager,
  { clock, log }: { readonly clock: Clock; readonly log: Logger },
  onSession: () => void,
): PodSource {
  return new ZdsProxy(
    { path: zdsPath, hello: { group, state: 'serving' }, clock, log },
    {
      sessionStarted: () => {
        onSession();
        pods.sessionOpened();
      },
      add: (uid, info, netnsFd) => pods.add({ uid, ...info }, netnsFd),
      del: (uid) => pods.delete(uid),
      snapshot: async (uids) => pods.snapshot(uids),
      sessionEnded: () => pods.sessionClosed(),
    },
  );
}
