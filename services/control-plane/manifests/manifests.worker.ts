/** Entry of the thread that reads large manifests, so that they do not hold up the event loop. */
import { once } from 'node:events';
import type { MessagePort } from 'node:worker_threads';
import { MAX_MESSAGE_ROWS } from '../limits.ts';
import { readManifests } from './read-manifests.ts';
import type { ReadSummary, ReadTask } from './read-manifests.ts';

/** Sends the objects in parts, each after the previous part was taken; returns the summary. */
export default async function readInParts({
  task,
  port,
}: {
  readonly task: ReadTask;
  readonly port: MessagePort;
}): Promise<ReadSummary> {
  const { items, ...summary } = readManifests(task);
  if (summary.problems.length === 0) {
    for (let start = 0; start < items.length; start += MAX_MESSAGE_ROWS) {
      const taken = once(port, 'message');
      port.postMessage(items.slice(start, start + MAX_MESSAGE_ROWS));
      await taken;
    }
  }
  port.close();
  return summary;
}
