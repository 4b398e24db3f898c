import type { QueueCounts, Scope } from './contract.ts';
import { queuesOfScope } from './catalog.ts';
import { scopePrefix } from './keys.ts';
import { asBusError } from './redis-client.ts';
import type { RedisClient } from './redis-client.ts';

/** Delayed jobs that are read to tell those that failed before from those that were added with a delay. */
const DELAYED_SAMPLE_MAX = 1_000;

/**
 * Reads the depths of all queues of the scopes. BullMQ's own call is a script that needs the right to write; plain reads of its keys
 * are open to every role that sees the queue.
 */
export async function readQueueCounts(
  client: RedisClient,
  prefix: string,
  scopes: readonly Scope[],
): Promise<readonly QueueCounts[]> {
  const counts: QueueCounts[] = [];
  try {
    for (const scope of scopes) {
      for (const queue of queuesOfScope[scope === 'mesh' ? 'mesh' : 'node']) {
        const name = scope === 'mesh' ? queue : `${queue}.${scope.node}`;
        counts.push({
          name,
          ...(await readCounts(client, `${scopePrefix(prefix, scope)}:${queue}`)),
        });
      }
    }
  } catch (error) {
    throw asBusError(error, 'cannot read queues');
  }
  return counts;
}

async function readCounts(client: RedisClient, base: string): Promise<Omit<QueueCounts, 'name'>> {
  const [wait, paused, prioritized, active, delayed, dead] = await Promise.all([
    client.llen(`${base}:wait`),
    client.llen(`${base}:paused`),
    client.zcard(`${base}:prioritized`),
    client.llen(`${base}:active`),
    client.zcard(`${base}:delayed`),
    client.zcard(`${base}:failed`),
  ]);
  const failed = delayed === 0 ? 0 : await countFailedBefore(client, base);
  return { waiting: wait + paused + prioritized, active, delayed, failed, dead };
}

async function countFailedBefore(client: RedisClient, base: string): Promise<number> {
  const ids = await client.zrange(`${base}:delayed`, 0, String(DELAYED_SAMPLE_MAX - 1));
  // atm: BullMQ's count of attempts made.
  const attempts = await Promise.all(ids.map((id) => client.hget(`${base}:${id}`, 'atm')));
  return attempts.filter((count) => Number(count ?? 0) > 0).length;
}
