/** Runs the real listener thread, and dies when the file named by LISTENER_DIES_WITH appears. */
import { existsSync, rmSync } from 'node:fs';
import { attach as attachReal } from '../../workers/listener/listener.worker.ts';
import type { ThreadAttachment } from '../../workers/listener/protocol/control.ts';

export { servePod } from '../../workers/listener/listener.worker.ts';

export async function attach(attachment: ThreadAttachment): Promise<void> {
  attachReal(attachment);
  const file = process.env['LISTENER_DIES_WITH'] ?? '';
  setInterval(() => {
    if (!existsSync(file)) return;
    rmSync(file, { force: true });
    process.exit(7);
  }, 20).unref();
}
