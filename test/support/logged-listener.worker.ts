/** Runs the real listener thread and sends its log lines to a broadcast channel named after the node. */
import { BroadcastChannel } from 'node:worker_threads';
import { present } from '../../lib/errors/assert.ts';
import type { PodTask, ThreadAttachment } from '../../workers/listener/protocol/control.ts';
import { ListenerThread } from '../../workers/listener/thread.ts';
import { carriedEngine } from '../../lib/hbone/carried/engine.ts';

let thread: ListenerThread | null = null;

export function attach(attachment: ThreadAttachment): void {
  const channel = new BroadcastChannel(attachment.settings.node);
  channel.unref();
  const tell = (line: string): void => channel.postMessage(line);
  const engine = carriedEngine;
  thread = new ListenerThread(attachment, engine, { write: tell, gather: tell });
}

export function servePod(task: PodTask): Promise<void> {
  return present(thread, 'attached first').serve(task);
}
