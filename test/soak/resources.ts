/** Reads descriptors and memory of the processes that carry traffic or hold pods. */
import { readFile, readdir } from 'node:fs/promises';
import type { TestMesh } from '../support/mesh.ts';

/** The resources of a process. */
export interface Usage {
  readonly name: string;
  readonly descriptors: number;
  readonly ownBytes: number;
}

/** The memory of a process without its garbage. */
export interface HeldMemory {
  /** Objects of the main thread's heap. */
  readonly heapBytes: number;
  /** The whole process, as {@link Usage}. */
  readonly ownBytes: number;
}

const MIB = 1_048_576;
/** Pipes that the pump keeps for reuse (KEPT_PIPES of lib/linux/addon), two descriptors each. */
const KEPT_PIPES = 8;
/** The kept pipes, and descriptors in short use: a scrape, a reconnect, an open file. */
const SPARE_DESCRIPTORS = 2 * KEPT_PIPES + 8;
/** Heaps return memory late; growth below this bound cannot be distinguished from that. */
const SPARE_BYTES = 32 * MIB;
const SPARE_SHARE = 0.15;
/** In a short soak heaps have not reached their size yet; only unbounded growth is visible. */
const SHORT_SPARE_BYTES = 256 * MIB;
const SHORT_SECONDS = 180;
/** Compiled code comes and goes; what else stays of thousands of enrolments is held by mistake. */
const SPARE_HELD_HEAP_BYTES = MIB;
/** Pages that the C heaps and V8 keep half empty after a collection. */
const SPARE_HELD_BYTES = 10 * MIB;

/** Reads the usage of every node proxy and node agent. */
export async function readUsage(mesh: TestMesh): Promise<readonly Usage[]> {
  const actors = (await mesh.actors()).filter(({ name }) => /^node-(?:proxy|agent)$/.test(name));
  return Promise.all(
    actors.map(async ({ name, node, pid }) => ({
      name: `${name} of ${node ?? 'the mesh'}`,
      descriptors: (await readdir(`/proc/${pid}/fd`)).length,
      ownBytes: await ownBytes(pid),
    })),
  );
}

/** Reads the memory that is a process's own. Pages of its programs' files come and go with what else the machine does. */
export async function ownBytes(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  const parts = [...status.matchAll(/^(?:RssAnon|RssShmem|VmSwap):\s+(\d+) kB$/gm)];
  if (parts.length === 0) throw new Error(`the kernel does not tell the memory of process ${pid}`);
  return parts.reduce((sum, [, kilobytes]) => sum + Number(kilobytes), 0) * 1_024;
}

/** Lists the processes that hold more descriptors than before. */
export function heldDescriptors(before: readonly Usage[], after: readonly Usage[]): string[] {
  return pairs(before, after)
    .filter(([was, is]) => is.descriptors > was.descriptors + SPARE_DESCRIPTORS)
    .map(([was, is]) => `${is.name}: ${is.descriptors} descriptors, before ${was.descriptors}`);
}

/** Lists the processes that hold more memory than heaps explain. `early` and `late` are the minima of two parts of a soak. */
export function grownMemory(
  early: readonly Usage[],
  late: readonly Usage[],
  seconds: number,
): string[] {
  const spare = seconds < SHORT_SECONDS ? SHORT_SPARE_BYTES : SPARE_BYTES;
  const allowed = (bytes: number): number => bytes * (1 + SPARE_SHARE) + spare;
  return pairs(early, late)
    .filter(([was, is]) => is.ownBytes > allowed(was.ownBytes))
    .map(([was, is]) => `${is.name}: ${mib(is)} MiB, before ${mib(was)} MiB`);
}

/** Tells whether a process holds more without its garbage than it did, in its heap or as a whole. */
export function grownHeld(early: HeldMemory, late: HeldMemory): string[] {
  const grown = (what: string, was: number, is: number, spare: number): string[] =>
    is <= was + spare
      ? []
      : [
          `without garbage ${what} holds ${mib({ ownBytes: is }, 1)} MiB, before ${mib({ ownBytes: was }, 1)} MiB`,
        ];
  return [
    ...grown('the heap', early.heapBytes, late.heapBytes, SPARE_HELD_HEAP_BYTES),
    ...grown('the process', early.ownBytes, late.ownBytes, SPARE_HELD_BYTES),
  ];
}

/** Returns the smaller memory of both for each process. */
export function least(one: readonly Usage[], other: readonly Usage[]): readonly Usage[] {
  return pairs(one, other).map(([a, b]) => (a.ownBytes < b.ownBytes ? a : b));
}

/** Formats mebibytes. */
export function mib({ ownBytes: bytes }: Pick<Usage, 'ownBytes'>, digits = 0): string {
  return (bytes / MIB).toFixed(digits);
}

/** Pairs the usages of the same process. A missing or new process was restarted, which the caller detects elsewhere. */
export function pairs(one: readonly Usage[], other: readonly Usage[]): [Usage, Usage][] {
  return one.flatMap((usage): [Usage, Usage][] => {
    const same = other.find(({ name }) => name === usage.name);
    return same === undefined ? [] : [[usage, same]];
  });
}
