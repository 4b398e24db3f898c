/** Finds the network namespaces of pods among the processes of the node (docs/spec/cni.md §3.6). */
import { readFile, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf } from '../../../lib/linux/errno.ts';
import { NetnsHandle } from '../../../lib/linux/netns-handle.ts';
import { podOfCgroups } from './cgroup-pod.ts';
import { holdsAddress } from './pod-addresses.ts';

/** A pod whose namespace is looked for. */
export interface WantedPod {
  readonly uid: string;
  readonly addresses: readonly string[];
}

/** The process has ended, or may not be inspected. */
const GONE: ReadonlySet<string> = new Set(['ENOENT', 'ESRCH', 'EACCES', 'EPERM']);

interface Candidate {
  readonly netns: NetnsHandle;
  /** Clock ticks from the boot to the start of its process. */
  readonly started: bigint;
}

/**
 * Looks at every process below `procDir` for the pods, `wanted` by the uids of their processes, and returns the namespaces found, by the
 * pod's own uid; the caller releases them. A namespace counts when an interface in it has an address of the pod, because helpers of the
 * runtime are in foreign namespaces for a moment. The one with the oldest process counts. Throws when `procDir` cannot be read.
 */
export async function scanProcesses(
  procDir: string,
  wanted: ReadonlyMap<string, readonly WantedPod[]>,
): Promise<ReadonlyMap<string, NetnsHandle>> {
  const found = new Map<string, Candidate>();
  try {
    const names = (await readdir(procDir)).filter((name) => /^\d+$/.test(name));
    const host = await namespaceNumber(join(procDir, '1'));
    for (const name of names) {
      await lookAt(join(procDir, name), { wanted, host, found });
    }
  } catch (error) {
    for (const { netns } of found.values()) netns.release();
    throw error;
  }
  return new Map([...found].map(([uid, { netns }]) => [uid, netns]));
}

async function lookAt(
  dir: string,
  scan: {
    readonly wanted: ReadonlyMap<string, readonly WantedPod[]>;
    readonly host: string | null;
    readonly found: Map<string, Candidate>;
  },
): Promise<void> {
  const number = await namespaceNumber(dir);
  if (number === null || number === scan.host) return;
  const cgroups = await readIfThere(join(dir, 'cgroup'));
  const uid = cgroups === null ? null : podOfCgroups(cgroups);
  // Several pods where one has the uid of another in an annotation, as anybody can write.
  const pods = (uid === null ? null : scan.wanted.get(uid)) ?? [];
  if (pods.length === 0) return;
  const started = startTime(await readIfThere(join(dir, 'stat')));
  if (started === null) return;
  const isNewer = (pod: WantedPod): boolean =>
    (scan.found.get(pod.uid)?.started ?? started + 1n) <= started;
  if (pods.every(isNewer)) return;
  const netns = openIfThere(join(dir, 'ns/net'));
  if (netns === null) return;
  try {
    const pod = pods.find(({ addresses }) => holdsAddress(netns, addresses));
    if (pod === undefined || isNewer(pod)) return;
    scan.found.get(pod.uid)?.netns.release();
    scan.found.set(pod.uid, { netns: netns.retain(), started });
  } finally {
    netns.release();
  }
}

/** Returns what tells the process's namespace from others; null when it has ended or may not be inspected. */
async function namespaceNumber(dir: string): Promise<string | null> {
  const status = await ignoreGone(() => stat(join(dir, 'ns/net'), { bigint: true }));
  return status === null ? null : `${status.dev}.${status.ino}`;
}

function readIfThere(path: string): Promise<string | null> {
  return ignoreGone(() => readFile(path, 'utf8'));
}

/** Field 22 of `/proc/<pid>/stat`; the name before it may hold anything. */
function startTime(text: string | null): bigint | null {
  const field = text?.slice(text.lastIndexOf(')') + 2).split(' ')[19];
  return field === undefined || !/^\d+$/.test(field) ? null : BigInt(field);
}

function openIfThere(path: string): NetnsHandle | null {
  try {
    return NetnsHandle.open(path);
  } catch (error) {
    if (GONE.has(errnoOf(error) ?? '')) return null;
    throw error;
  }
}

async function ignoreGone<T>(read: () => Promise<T>): Promise<T | null> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof Error && 'code' in error && GONE.has(String(error.code))) return null;
    throw error;
  }
}
