/** The listener thread as it is, its log lines sent to a broadcast channel named by the node. */
import { BroadcastChannel } from 'node:worker_threads';
import { present } from '../../lib/errors/assert.ts';
import type { PodTask, ThreadAttachment } from '../../workers/listener/protocol.ts';
import { ListenerThread } from '../../workers/listener/thread.ts';

let thread: ListenerThread | null = null;

export function attach(attachment: ThreadAttachment): void {
  const channel = new BroadcastChannel(attachment.settings.node);
  channel.unref();
  thread = new ListenerThread(attachment, { write: (line) => channel.postMessage(line) });
}

export function servePod(task: PodTask): Promise<void> {
  return present(thread, 'attached first').serve(task);
}
