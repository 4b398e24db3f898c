/** Entry of a listener thread; the exports are its tasks (see {@link ListenerTask} in protocol.ts). */
import { assert, present } from '../../lib/errors/assert.ts';
import { saveMemory } from '../../lib/linux/process.ts';
import type { PodTask, ThreadAttachment } from './protocol/control.ts';
import { ListenerThread } from './thread.ts';
import { carriedEngine } from '../../lib/hbone/carried/engine.ts';

let thread: ListenerThread | null = null;

/** Wires the thread, once. */
export function attach(attachment: ThreadAttachment): void {
  assert(thread === null, 'a listener thread is attached once');
  // Without it, new connections leave 30 MB of old garbage in each thread before V8 collects it.
  saveMemory();
  thread = new ListenerThread(attachment, carriedEngine);
}

/** Serves a pod; resolves when it is stopped and its sockets are closed. */
export function servePod(task: PodTask): Promise<void> {
  return present(thread, 'a thread is attached before it serves').serve(task);
}
