import type { Bus } from '../../lib/bus/redis-bus.ts';
import type { Lease } from '../../lib/bus/lease.ts';
import type { Clock, Timer } from '../../lib/clock/clock.ts';
import { STANDBY_AFTER_MS } from './limits.ts';

/** Collaborators of {@link onceStandby}. */
export interface StandbyDeps {
  readonly bus: Pick<Bus, 'connected' | 'onConnection'>;
  readonly lease: Pick<Lease, 'held' | 'onChange'>;
  readonly clock: Clock;
}

/**
 * Calls `standsBy` once when Redis is there and this process has not held the lease for {@link STANDBY_AFTER_MS}: another ingester
 * leads. It may have held the lease before, and have lost it before it came to serve. The result ends the wait.
 */
export function onceStandby({ bus, lease, clock }: StandbyDeps, standsBy: () => void): () => void {
  let timer: Timer | null = null;
  const wait = (): void => {
    timer?.cancel();
    timer = bus.connected && !lease.held ? clock.after(STANDBY_AFTER_MS, decide) : null;
  };
  const releases = [bus.onConnection(wait), lease.onChange(wait)];
  const end = (): void => {
    timer?.cancel();
    for (const release of releases) release();
  };
  const decide = (): void => {
    end();
    standsBy();
  };
  wait();
  return end;
}
