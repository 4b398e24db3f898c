/** Runs load from a pod while a test causes failures, and reports every failed connection. */
import type { LoadCounts, LoadFailure, LoadLine } from './load-lines.ts';
import type { RunningCommand, TestMesh } from './mesh.ts';
import { until } from './until.ts';

const CLIENT = new URL('load-client.ts', import.meta.url).pathname;
/** The number of further answers, of each kind from each target, that shows that the load goes on. */
const ENOUGH = 20;
const ANSWERS_TIMEOUT_MS = 60_000;
const FAILURES_SHOWN = 5;

/** Requests from one pod to targets, over new connections and one kept connection each. */
export class Load {
  readonly #command: RunningCommand;
  readonly #targets: readonly string[];
  readonly #failures: LoadFailure[] = [];
  #latest: LoadCounts = {};
  #readTo = 0;

  private constructor(command: RunningCommand, targets: readonly string[]) {
    this.#command = command;
    this.#targets = targets;
  }

  /** Starts the load in the pod (`demo/client`) and waits until every target answers over both kinds of connection. */
  static async start(mesh: TestMesh, pod: string, ...targets: string[]): Promise<Load> {
    const load = new Load(mesh.background(pod, process.execPath, CLIENT, ...targets), targets);
    await load.goesOn('at the start');
    return load;
  }

  /** Waits until all or the given targets have answered twenty more times, over new connections and over the kept one. */
  async goesOn(what: string, targets: readonly string[] = this.#targets): Promise<void> {
    await Promise.all([this.answers('fresh', what, targets), this.answers('kept', what, targets)]);
  }

  /** Waits for twenty more answers over one kind of connection. */
  async answers(
    kind: 'fresh' | 'kept',
    what: string,
    targets: readonly string[] = this.#targets,
  ): Promise<void> {
    const before = this.#counts();
    const left = (): string[] =>
      targets.filter((target) => {
        const seen = before[target]?.[kind] ?? 0;
        return (this.#counts()[target]?.[kind] ?? 0) < seen + ENOUGH;
      });
    try {
      await until(() => left().length === 0, { what: 'answers', timeoutMs: ANSWERS_TIMEOUT_MS });
    } catch (error) {
      const failures = JSON.stringify(this.failures().slice(-FAILURES_SHOWN));
      throw new Error(`no ${kind} connection to ${left().join(', ')} ${what}; ${failures}`, {
        cause: error,
      });
    }
  }

  /** Returns every failed connection so far. */
  failures(): readonly LoadFailure[] {
    this.#read();
    return this.#failures;
  }

  /** Ends the load; returns every failed connection. */
  async stop(): Promise<readonly LoadFailure[]> {
    this.#command.kill();
    await this.#command.exit;
    return this.failures();
  }

  #counts(): LoadCounts {
    this.#read();
    return this.#latest;
  }

  /** Reads the lines that came since the last call. Text after the last line break is an incomplete line. */
  #read(): void {
    const output = this.#command.output();
    const end = output.lastIndexOf('\n') + 1;
    for (const text of output.slice(this.#readTo, end).split('\n').slice(0, -1)) {
      const line = JSON.parse(text) as LoadLine;
      if ('counts' in line) this.#latest = line.counts;
      else this.#failures.push(line.failure);
    }
    this.#readTo = end;
  }
}
