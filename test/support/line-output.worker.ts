/** Gathers numbered lines for a descriptor, and then ends as it is told to, or is ended. */
import { isMainThread, parentPort, workerData, Worker } from 'node:worker_threads';
import { systemClock } from '../../lib/clock/clock.ts';
import { LineOutput } from '../../lib/log/line-output.ts';

/** The task of a thread. As a program of its own, this file runs one thread with the task in its argument, and exits. */
export interface LineTask {
  readonly fd: number;
  readonly name: string;
  readonly lines: number;
  readonly bytes: number;
  /** `flush` writes each line by itself, and waits. */
  readonly end: 'wait' | 'exit' | 'throw' | 'flush';
}

if (isMainThread) {
  const task = process.argv[2];
  if (task !== undefined) {
    const worker = new Worker(new URL(import.meta.url), {
      workerData: JSON.parse(task) as LineTask,
    });
    worker.once('message', () => process.exit(0));
  }
} else {
  const { fd, name, lines, bytes, end } = workerData as LineTask;
  const output = new LineOutput(fd, systemClock);
  for (let index = 0; index < lines; index += 1) {
    output.gather(`${name} ${index} ${'x'.repeat(bytes)}\n`);
    if (end === 'flush') output.flush();
  }
  parentPort?.postMessage('gathered');
  if (end === 'exit') process.exit(3);
  if (end === 'throw') throw new Error('on purpose');
  parentPort?.on('message', () => undefined);
}
