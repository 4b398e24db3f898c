/** The namespaces of pods, opened by an agent that has no descriptor left to read their addresses. */
import { execFileSync } from 'node:child_process';
import { closeSync, openSync, readdirSync } from 'node:fs';
import { mkdir, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import { raiseFileLimit } from '../../../lib/linux/process.ts';
import { PodNamespaces } from '../../../services/node-agent/netns/pod-namespaces.ts';
import { keptLog } from '../../support/actor-context.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { podRecord } from '../../support/pod-records.ts';

const UID = '00000000-0000-4000-8000-000000000001';
const OWN = '/proc/self/ns/net';
const RECORD = podRecord({ uid: UID, netns: OWN, addresses: ['127.0.0.1'] });
/** Descriptors that the process may open besides its present ones. */
const SPARE = 32;
const EXHAUSTED = /Too many open files/;

/** Opens files until no descriptor is left. */
function fill(held: number[]): void {
  try {
    for (;;) held.push(openSync('/dev/null', 'r'));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EMFILE') throw error;
  }
}

/** Runs `work` with one descriptor, and returns how many are left after it. */
async function starved(work: () => Promise<void>): Promise<number> {
  const most = Math.max(...readdirSync('/proc/self/fd').map(Number)) + SPARE;
  execFileSync('prlimit', ['--pid', String(process.pid), `--nofile=${most}:`]);
  const held: number[] = [];
  try {
    fill(held);
    closeSync(held.pop() ?? -1);
    await work();
    const before = held.length;
    fill(held);
    return held.length - before;
  } finally {
    for (const fd of held) closeSync(fd);
    raiseFileLimit();
  }
}

test.serial('a descriptor is returned when a named namespace cannot be read', async (t) => {
  const { log } = keptLog('node-agent');
  const namespaces = new PodNamespaces({ procDir: '/proc', sandboxes: null, log });
  // The first call loads the addon.
  (await namespaces.open(RECORD)).release();
  const left = await starved(async () => {
    await t.throwsAsync(namespaces.open(RECORD), { code: 'NATIVE_SYSCALL', message: EXHAUSTED });
  });
  t.is(left, 1);
});

/** Makes a `/proc` with one process of the pod, of number 42. */
async function procOf(t: ExecutionContext): Promise<string> {
  const procDir = await makeScratch('proc');
  t.teardown(() => rm(procDir, { recursive: true }));
  const dir = join(procDir, '42');
  await mkdir(join(dir, 'ns'), { recursive: true });
  await symlink(OWN, join(dir, 'ns', 'net'));
  await writeFile(join(dir, 'cgroup'), `0::/kubepods/pod${UID}/${'a'.repeat(64)}\n`);
  await writeFile(join(dir, 'stat'), `42 (x) S ${'0 '.repeat(18)}7 0\n`);
  return procDir;
}

for (const [whose, sandboxes] of [
  ['the runtime', { processOf: () => Promise.resolve(42) }],
  ['a process', null],
] as const) {
  test.serial(`a descriptor is returned when a namespace of ${whose} cannot be read`, async (t) => {
    const procDir = await procOf(t);
    const { log, lines } = keptLog('node-agent');
    const namespaces = new PodNamespaces({ procDir, sandboxes, log });
    const record = { ...RECORD, netns: null };
    (await namespaces.open(record)).release();
    const left = await starved(async () => {
      const error = await t.throwsAsync(namespaces.open(record), { code: 'NETNS_UNAVAILABLE' });
      t.regex(errorText(error?.cause), EXHAUSTED);
    });
    t.is(left, 1);
    t.is(lines.length, sandboxes === null ? 0 : 1);
  });
}
