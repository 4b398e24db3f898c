/** How long the event loop of this process is held, and by what. */
import { PerformanceObserver } from 'node:perf_hooks';
import { setImmediate as turn } from 'node:timers/promises';

/** The longest turns since a beginning. Only the first contains the time that other programs had the processor. */
export interface LongestTurns {
  readonly longestTurnMs: number;
  /** The most processor time of this thread in one turn, with its own part of garbage collections: a quiet machine needs as long. */
  readonly longestCpuMs: number;
  /** The most processor time of this thread in one turn, without garbage collections. */
  readonly longestWorkMs: number;
  readonly longestGcMs: number;
}

/** A timer this short tells the turns, to a millisecond. */
const TICK_MS = 1;
/** Shorter turns are not kept. */
const LONG_TURN_MS = 4;
/** Turns after which the runtime has told of every collection before. */
const TELLING_TURNS = 3;
const US_PER_MS = 1_000;

interface Span {
  readonly startMs: number;
  readonly endMs: number;
}

interface LongTurn extends Span {
  readonly cpuMs: number;
}

/** Watches the turns until the process ends; it does not keep the process alive. */
export class Turns {
  #long: LongTurn[] = [];
  #collections: Span[] = [];
  #beganMs = 0;
  #last = performance.now();
  #lastCpuMs = threadCpuMs();

  constructor() {
    new PerformanceObserver((list) => {
      for (const { startTime, duration } of list.getEntries()) {
        this.#collections.push({ startMs: startTime, endMs: startTime + duration });
      }
    }).observe({ entryTypes: ['gc'] });
    setInterval(() => this.#tick(), TICK_MS).unref();
  }

  /** Forgets everything so far. */
  begin(): void {
    this.#tick();
    this.#long = [];
    this.#collections = [];
    this.#beganMs = this.#last;
  }

  /** The longest since {@link begin}. */
  async longest(): Promise<LongestTurns> {
    this.#tick();
    for (let turns = 0; turns < TELLING_TURNS; turns += 1) await turn();
    // Some are told after the beginning, but were before.
    const collections = this.#collections.filter(({ startMs }) => startMs >= this.#beganMs);
    const work = this.#long.map((long) => long.cpuMs - within(long, collections));
    return {
      longestTurnMs: most(this.#long.map(lengthOf)),
      longestCpuMs: most(this.#long.map(({ cpuMs }) => cpuMs)),
      longestWorkMs: most(work),
      longestGcMs: most(collections.map(lengthOf)),
    };
  }

  #tick(): void {
    const now = performance.now();
    const cpuMs = threadCpuMs();
    if (now - this.#last > LONG_TURN_MS) {
      this.#long.push({ startMs: this.#last, endMs: now, cpuMs: cpuMs - this.#lastCpuMs });
    }
    this.#last = now;
    this.#lastCpuMs = cpuMs;
  }
}

function threadCpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / US_PER_MS;
}

function lengthOf({ startMs, endMs }: Span): number {
  return endMs - startMs;
}

function most(values: readonly number[]): number {
  return values.reduce((left, right) => Math.max(left, right), 0);
}

/** Time of the spans that lies in another. */
function within(outer: Span, spans: readonly Span[]): number {
  return spans.reduce((sum, { startMs, endMs }) => {
    const common = Math.min(endMs, outer.endMs) - Math.max(startMs, outer.startMs);
    return sum + Math.max(0, common);
  }, 0);
}
