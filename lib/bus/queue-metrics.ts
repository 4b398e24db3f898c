import { errorText } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';
import type { MetricRegistry } from '../metrics/registry.ts';
import type { Scope } from './contract.ts';
import type { Bus } from './redis-bus.ts';

/** Exposes the depths of the scopes' queues, read at each scrape. Without Redis it exposes none. */
export function exposeQueueDepths(
  registry: MetricRegistry,
  bus: Pick<Bus, 'queueCounts'>,
  scopes: readonly Scope[],
  log: Logger,
): void {
  const help = 'Jobs by queue and state; dead ones are given up and kept for a look';
  registry.gauge('weft_bus_queue_jobs', help, ['queue', 'state'], async (gauge) => {
    gauge.reset();
    try {
      for (const { name, waiting, active, delayed, dead } of await bus.queueCounts(scopes)) {
        const states = { waiting, active, delayed, dead };
        for (const [state, count] of Object.entries(states))
          gauge.set({ queue: name, state }, count);
      }
    } catch (error) {
      log.debug({ error: errorText(error) }, 'bus.queues-unknown');
    }
  });
}
