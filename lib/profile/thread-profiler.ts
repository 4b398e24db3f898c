/** Profiles the calling thread with V8's profiler, through node:inspector. */
import { Session } from 'node:inspector/promises';
import type { HeapProfiler, Profiler } from 'node:inspector';
import { setTimeout as wait } from 'node:timers/promises';
import { MeshError } from '../errors/mesh-error.ts';

/** A request to a thread. */
export type ProfileCommand =
  | { readonly kind: 'cpu'; readonly durationMs: number; readonly frequencyHz: number }
  | { readonly kind: 'heap' }
  | { readonly kind: 'heap.activate'; readonly active: boolean };

/** A thread's answer; plain data that survives structured clone. */
export type ThreadProfile =
  | { readonly kind: 'cpu'; readonly profile: Profiler.Profile }
  | { readonly kind: 'heap'; readonly profile: HeapProfiler.SamplingHeapProfile }
  | { readonly kind: 'heap.active'; readonly active: boolean };

const US_PER_SECOND = 1_000_000;

/** Average bytes between two samples of the heap: at most a few hundred samples per second, V8's own default. */
export const HEAP_SAMPLE_BYTES = 32_768;

/** Takes one profile of each kind at a time. */
export class ThreadProfiler {
  #heap: Session | null = null;
  #cpuRuns = false;

  /** Executes a command. Rejects with STATE_CONFLICT for a second CPU profile, and for a heap that is not sampled. */
  async run(command: ProfileCommand): Promise<ThreadProfile> {
    switch (command.kind) {
      case 'cpu':
        return { kind: 'cpu', profile: await this.#cpu(command) };
      case 'heap':
        return { kind: 'heap', profile: await this.#heapProfile() };
      case 'heap.activate':
        await this.#activate(command.active);
        return { kind: 'heap.active', active: this.#heap !== null };
    }
  }

  async #cpu({ durationMs, frequencyHz }: { durationMs: number; frequencyHz: number }) {
    if (this.#cpuRuns)
      throw new MeshError('STATE_CONFLICT', 'a CPU profile is being taken already');
    this.#cpuRuns = true;
    const session = new Session();
    try {
      session.connect();
      await session.post('Profiler.enable');
      await session.post('Profiler.setSamplingInterval', {
        interval: Math.round(US_PER_SECOND / frequencyHz),
      });
      await session.post('Profiler.start');
      await wait(durationMs);
      const { profile } = await session.post('Profiler.stop');
      return profile;
    } finally {
      session.disconnect();
      this.#cpuRuns = false;
    }
  }

  async #activate(active: boolean): Promise<void> {
    if (active === (this.#heap !== null)) return;
    if (this.#heap !== null) {
      this.#heap.disconnect();
      this.#heap = null;
      return;
    }
    const session = new Session();
    session.connect();
    this.#heap = session;
    await session.post('HeapProfiler.enable');
    await session.post('HeapProfiler.startSampling', { samplingInterval: HEAP_SAMPLE_BYTES });
  }

  async #heapProfile(): Promise<HeapProfiler.SamplingHeapProfile> {
    if (this.#heap === null) throw new MeshError('STATE_CONFLICT', 'the heap is not sampled');
    const { profile } = await this.#heap.post('HeapProfiler.getSamplingProfile');
    return profile;
  }
}
