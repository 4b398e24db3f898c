import type { Bus } from '../../../lib/bus/redis-bus.ts';
import type { LocalSource } from '../config/local-state.ts';
import { LocalState } from './local-state.ts';
import type { LocalStateDependencies } from './local-state.ts';
import { StateFeed } from './state-feed.ts';
import type { FeedTarget } from './state-feed.ts';

/** Feeds the state thread until it is closed. */
export type Feed = Pick<StateFeed | LocalState, 'close'>;

/** Starts feeding `target` from `local`, or from Redis where that is null. Rejects as {@link LocalState.start} does. */
export async function startFeed(
  local: LocalSource | null,
  deps: LocalStateDependencies & { readonly bus: Bus },
  target: FeedTarget,
): Promise<Feed> {
  if (local === null) return new StateFeed(deps.bus, target);
  const state = new LocalState(local, deps, target);
  try {
    await state.start();
  } catch (error) {
    await state.close();
    throw error;
  }
  return state;
}
