/**
 * Opens the network namespace of a pod with one descriptor left, and writes what came of it to standard output. The
 * argument says who names the namespace: its record, the container runtime, or a process of the pod.
 */
import { execFileSync } from 'node:child_process';
import { closeSync, openSync, readdirSync } from 'node:fs';
import { mkdir, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { PodNamespaces } from '../../services/node-agent/netns/pod-namespaces.ts';
import { keptLog } from './actor-context.ts';
import { makeScratch } from './leftovers.ts';
import { podRecord } from './pod-records.ts';

/** The outcome of one start of this process. */
export interface Starved {
  /** The code and the text of the error; null when the namespace was opened. */
  readonly error: {
    readonly code: unknown;
    readonly text: string;
    readonly cause: string | null;
  } | null;
  /** How many descriptors could be opened afterwards; one when nothing was kept. */
  readonly left: number;
  /** How many lines were logged. */
  readonly logged: number;
}

const UID = '00000000-0000-4000-8000-000000000001';
const OWN = '/proc/self/ns/net';
/** Descriptors that the process may open besides its present ones. */
const SPARE = 32;

/** Opens files until no descriptor is left. */
function fill(held: number[]): void {
  try {
    for (;;) held.push(openSync('/dev/null', 'r'));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EMFILE') throw error;
  }
}

/** Makes a `/proc` with one process of the pod, of number 42. */
async function procOf(): Promise<string> {
  const procDir = await makeScratch('proc');
  const dir = join(procDir, '42');
  await mkdir(join(dir, 'ns'), { recursive: true });
  await symlink(OWN, join(dir, 'ns', 'net'));
  await writeFile(join(dir, 'cgroup'), `0::/kubepods/pod${UID}/${'a'.repeat(64)}\n`);
  await writeFile(join(dir, 'stat'), `42 (x) S ${'0 '.repeat(18)}7 0\n`);
  return procDir;
}

/** Runs `work` with one descriptor left. */
async function starved(work: () => Promise<unknown>): Promise<Omit<Starved, 'logged'>> {
  const most = Math.max(...readdirSync('/proc/self/fd').map(Number)) + SPARE;
  execFileSync('prlimit', ['--pid', String(process.pid), `--nofile=${most}:`]);
  const held: number[] = [];
  fill(held);
  closeSync(held.pop() ?? -1);
  const failure = await work().then(
    () => null,
    (error: unknown) => error as Error & { readonly code?: unknown },
  );
  const before = held.length;
  fill(held);
  for (const fd of held) closeSync(fd);
  const error = failure && {
    code: failure.code,
    text: failure.message,
    cause: errorText(failure.cause),
  };
  return { error, left: held.length - before };
}

const whose = process.argv[2];
const procDir = await procOf();
try {
  const { log, lines } = keptLog('node-agent');
  const sandboxes = whose === 'runtime' ? { processOf: () => Promise.resolve(42) } : null;
  const namespaces = new PodNamespaces({ procDir, sandboxes, log });
  const netns = whose === 'record' ? join(procDir, '42/ns/net') : null;
  const record = podRecord({ uid: UID, netns, addresses: ['127.0.0.1'] });
  // The first call loads the addon.
  (await namespaces.open(record)).release();
  const outcome = await starved(() => namespaces.open(record));
  process.stdout.write(JSON.stringify({ ...outcome, logged: lines.length } satisfies Starved));
} finally {
  await rm(procDir, { recursive: true });
}
