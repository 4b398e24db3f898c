/** Serves `/debug/pprof/*` of the admin server (docs/spec/observability.md §4): one profile of all threads of the process. */
import type { ServerResponse } from 'node:http';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { sendText } from '../../../lib/http/answers.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { HEAP_SAMPLE_BYTES } from '../../../lib/profile/thread-profiler.ts';
import type { ProfileCommand, ThreadProfile } from '../../../lib/profile/thread-profiler.ts';

/** A thread that can be profiled. */
export interface ProfiledThread {
  /** `main`, `state` or `listener-<n>`. */
  readonly name: string;
  profile(command: ProfileCommand): Promise<ThreadProfile>;
}

/** Returns the threads that run now. */
export type ProfiledThreads = () => readonly ProfiledThread[];

const MS_PER_SECOND = 1_000;
const SECONDS = { name: 'seconds', min: 1, max: 300, usual: 10 } as const;
const FREQUENCY = { name: 'frequency', min: 1, max: 1_000, usual: 100 } as const;

/** Takes profiles. One CPU profile is taken at a time, because a second one would disturb the first. */
export class PprofRoutes {
  readonly #threads: ProfiledThreads;
  #cpuRuns = false;
  #heapActive = false;

  constructor(threads: ProfiledThreads) {
    this.#threads = threads;
  }

  /** Serves `/debug/pprof/profile`. */
  async cpu(response: ServerResponse, query: URLSearchParams): Promise<void> {
    const seconds = bounded(query, SECONDS);
    const frequencyHz = bounded(query, FREQUENCY);
    if (typeof seconds === 'string' || typeof frequencyHz === 'string') {
      sendText(response, 400, `${typeof seconds === 'string' ? seconds : frequencyHz}\n`);
      return;
    }
    if (this.#cpuRuns) {
      sendText(response, 409, 'a CPU profile is being taken already; try again when it is done\n');
      return;
    }
    this.#cpuRuns = true;
    try {
      const command = { kind: 'cpu', durationMs: seconds * MS_PER_SECOND, frequencyHz } as const;
      const profiles = (await this.#all(command)).flatMap(({ thread, profile }) =>
        profile.kind === 'cpu' ? [{ thread, profile: profile.profile }] : [],
      );
      const { cpuToPprof } = await import('../../../lib/profile/pprof.ts');
      await send(response, cpuToPprof(profiles, frequencyHz), 'profile.pb.gz');
    } finally {
      this.#cpuRuns = false;
    }
  }

  /** Serves `/debug/pprof/heap`. */
  async heap(response: ServerResponse): Promise<void> {
    if (!this.#heapActive) {
      const how = '/debug/pprof/heap/profiling?activate=true';
      sendText(response, 500, `the heap is not profiled; activate it first: ${how}\n`);
      return;
    }
    const profiles = (await this.#all({ kind: 'heap' })).flatMap(({ thread, profile }) =>
      profile.kind === 'heap' ? [{ thread, profile: profile.profile }] : [],
    );
    const { heapToPprof } = await import('../../../lib/profile/pprof.ts');
    await send(response, heapToPprof(profiles, HEAP_SAMPLE_BYTES), 'heap.pb.gz');
  }

  /** Serves `/debug/pprof/heap/profiling`. */
  async heapState(response: ServerResponse, query: URLSearchParams): Promise<void> {
    const wanted = query.get('activate');
    if (wanted !== null && wanted !== 'true' && wanted !== 'false') {
      sendText(response, 400, `activate must be true or false, got ${JSON.stringify(wanted)}\n`);
      return;
    }
    if (wanted !== null) {
      const active = wanted === 'true';
      await this.#all({ kind: 'heap.activate', active });
      this.#heapActive = active;
    }
    sendText(response, 200, `heap profiling active: ${this.#heapActive}\n`);
  }

  /** Profiles all threads and leaves out those that fail. Throws STATE_UNAVAILABLE when all fail. */
  async #all(command: ProfileCommand): Promise<{ thread: string; profile: ThreadProfile }[]> {
    const results = await Promise.allSettled(
      this.#threads().map(async (thread) => ({
        thread: thread.name,
        profile: await thread.profile(command),
      })),
    );
    const profiles = results.flatMap((result) =>
      result.status === 'fulfilled' ? [result.value] : [],
    );
    const failed = results.find((result) => result.status === 'rejected');
    if (profiles.length > 0) return profiles;
    throw new MeshError('STATE_UNAVAILABLE', 'no thread can be profiled', {
      cause: failed?.reason,
    });
  }
}

/** Returns the number, or a text that says what is wrong with it. */
function bounded(
  query: URLSearchParams,
  { name, min, max, usual }: { name: string; min: number; max: number; usual: number },
): number | string {
  const text = query.get(name);
  if (text === null) return usual;
  const number = Number(text);
  if (/^\d{1,4}$/.test(text) && number >= min && number <= max) return number;
  return `${name} must be a whole number from ${min} to ${max}, got ${JSON.stringify(text.slice(0, 100))}`;
}

async function send(response: ServerResponse, profile: Uint8Array, name: string): Promise<void> {
  const body = await promisify(gzip)(profile);
  response.writeHead(200, {
    'content-type': 'application/octet-stream',
    'content-disposition': `attachment; filename="${name}"`,
    'content-length': body.length,
  });
  response.end(body);
}
