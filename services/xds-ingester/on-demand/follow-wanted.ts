import type { Lease } from '../../../lib/bus/lease.ts';
import type { Bus } from '../../../lib/bus/redis-bus.ts';
import type { Clock } from '../../../lib/clock/clock.ts';
import type { OnDemandMesh } from './on-demand-mesh.ts';

/** Time between looks at idle names and at names without a resource. */
const TICK_MS = 1_000;

/** Dependencies of {@link followWhileLeading}. */
export interface FollowDeps {
  readonly bus: Pick<Bus, 'followWanted'>;
  readonly lease: Pick<Lease, 'onChange'>;
  readonly mesh: OnDemandMesh;
  readonly clock: Clock;
  /** Watches the end of a reader. */
  readonly supervise: (name: string, work: Promise<unknown>) => void;
}

/** Takes the names that node-proxies want while this ingester leads. Returns the end of it. */
export function followWhileLeading({ bus, lease, mesh, clock, supervise }: FollowDeps): () => void {
  let end: (() => void) | null = null;
  const release = lease.onChange((held) => {
    end?.();
    end = null;
    if (!held) return;
    const reader = bus.followWanted((names) => mesh.want(names));
    const timer = clock.every(TICK_MS, () => mesh.tick());
    end = () => {
      timer.cancel();
      supervise('reader of wanted names', reader.close());
    };
  });
  return () => {
    release();
    end?.();
  };
}
