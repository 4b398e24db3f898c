/** The threads that carry ask for short slices, so that they need not wait for one that is in the midst of a long slice. */
import { readFileSync, readdirSync } from 'node:fs';
import { release } from 'node:os';
import test from 'ava';
import { carriedEngine } from '../../../lib/hbone/carried/engine.ts';
import { openTunnel, serveTunnels, tunnelOptions } from '../../support/tunnel-kit.ts';
import { identities } from '../../support/tunnel-pki.ts';
import { until } from '../../support/until.ts';

const SLICE_NS = 500_000;

/** The slice of a thread of this process; null where the kernel does not tell it, or the thread has ended. */
function sliceNs(thread: string): number | null {
  const told = /^se\.slice\s*:\s*(\d+)$/m.exec(read(`/proc/self/task/${thread}/sched`));
  return told === null ? null : Number(told[1]);
}

function carryThreads(): readonly string[] {
  return readdirSync('/proc/self/task').filter(
    (thread) => read(`/proc/self/task/${thread}/comm`) === 'weft-carry\n',
  );
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    return '';
  }
}

/** Why this kernel cannot show it; null when it can. */
function missing(): string | null {
  const [major = 0, minor = 0] = release().split('.').map(Number);
  if (major < 6 || (major === 6 && minor < 12)) return 'Linux before 6.12 grants no slices';
  return sliceNs(String(process.pid)) === null ? 'this kernel does not tell slices' : null;
}

const reason = missing();
if (reason !== null) process.stderr.write(`\nSKIPPED, NOT RUN: the slices of threads: ${reason}\n`);

(reason === null ? test : test.skip)(
  'a thread that carries has a short slice, and no other has',
  async (t) => {
    const { client, server } = await identities();
    const fixture = await serveTunnels(t, carriedEngine, tunnelOptions(server), async () => {});
    await openTunnel(t, carriedEngine, fixture.port, tunnelOptions(client));
    const threads = carryThreads();
    t.true(threads.length > 0);
    // It asks when it first runs, which may be after the thread of JavaScript has done its work.
    await until(() => threads.every((thread) => sliceNs(thread) === SLICE_NS), {
      what: 'every thread to have asked',
    });
    t.true((sliceNs(String(process.pid)) ?? 0) > SLICE_NS);
  },
);
