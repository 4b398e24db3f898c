/** A CA in a process of its own, for tests that kill it. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { TeardownOwner } from './actor-context.ts';
import { bareEnvironment } from './bare-environment.ts';
import type { CaKit } from './ca-kit.ts';
import { until } from './until.ts';

const ENTRY = fileURLToPath(new URL('ca-run.ts', import.meta.url));

/** The process. */
export interface CaProcess {
  /** Sends SIGKILL; resolves when the process is gone. */
  kill(): Promise<void>;
}

/** Starts the CA of a kit; resolves when it listens, on the kit's port. A step of a rotation takes at least `settleMs`. */
export async function startCaProcess(
  t: TeardownOwner,
  kit: CaKit,
  settleMs: number,
): Promise<CaProcess> {
  const child = spawn(process.execPath, [ENTRY], {
    env: bareEnvironment({ ...kit.environment, SETTLE_MS: String(settleMs) }),
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(child, 'exit');
  t.teardown(async () => {
    child.kill('SIGKILL');
    await exited;
  });
  let isListening = false;
  createInterface({ input: child.stdout }).on('line', (line) => {
    isListening ||= line.includes('"ca.listening"');
  });
  await until(
    () => {
      if (child.exitCode !== null) throw new Error(`the CA ended with ${child.exitCode}`);
      return isListening;
    },
    { what: 'the CA to listen' },
  );
  return {
    async kill() {
      child.kill('SIGKILL');
      await exited;
    },
  };
}
