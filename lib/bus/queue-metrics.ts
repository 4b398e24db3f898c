import { errorText } from '../errors/mesh-error.ts';
import { sendJson } from '../http/answers.ts';
import type { Routes } from '../http/routes.ts';
import type { Logger } from '../log/logger.ts';
import type { MetricRegistry } from '../metrics/registry.ts';
import type { Scope } from './contract.ts';
import type { Bus } from './redis-bus.ts';

/** Answers `GET /queues` with the depths of the scopes' queues: `{queues}`. */
export function routeQueues(
  routes: Routes,
  bus: Pick<Bus, 'queueCounts'>,
  scopes: readonly Scope[],
): void {
  routes.route('GET', '/queues', async (_request, response) =>
    sendJson(response, 200, { queues: await bus.queueCounts(scopes) }),
  );
}

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
