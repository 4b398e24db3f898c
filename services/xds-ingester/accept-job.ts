import { ACCEPTED_BOARD, acceptedSchema, stateAccept } from '../../lib/bus/catalog.ts';
import type { WorkConsumer } from '../../lib/bus/contract.ts';
import type { Lease } from '../../lib/bus/lease.ts';
import type { Bus } from '../../lib/bus/redis-bus.ts';
import { RESULT_LIFETIME_MS } from './limits.ts';
import type { MeshState } from './mesh-state.ts';

/** Dependencies of {@link acceptWhileLeading}. */
export interface AcceptDeps {
  readonly bus: Bus;
  readonly lease: Lease;
  readonly state: Pick<MeshState, 'applyHeld'>;
  /** Watches the end of a consumer. */
  readonly supervise: (name: string, work: Promise<unknown>) => void;
}

/** Applies the held removals that an operator accepts (`weft state accept`) while this ingester leads. */
export function acceptWhileLeading({ bus, lease, state, supervise }: AcceptDeps): void {
  const board = bus.results(ACCEPTED_BOARD, 'mesh', acceptedSchema);
  let consumer: WorkConsumer | null = null;
  lease.onChange((held) => {
    if (!held) {
      if (consumer !== null) supervise('consumer of accepted removals', consumer.close());
      consumer = null;
      return;
    }
    consumer = bus.consume(stateAccept, 'mesh', { concurrency: 1 }, async (body, attempt) => {
      const applied = state.applyHeld(Date.parse(body.upTo));
      await board.put(attempt.id, { applied }, RESULT_LIFETIME_MS);
    });
  });
}
