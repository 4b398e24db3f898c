/** Runs the clients of a soak and reads their reports. */
import type { RunningCommand, TestMesh } from '../support/mesh.ts';
import type { Exchange, SoakLine } from './protocol.ts';

const CLIENT = new URL('client.ts', import.meta.url).pathname;

/** The traffic of one client: its pod, its server and its kinds of exchange. */
export interface Traffic {
  readonly pod: string;
  readonly host: string;
  readonly atOnce: number;
  /** The pause after each exchange. */
  readonly pauseMs: number;
  readonly kinds: readonly Exchange[];
}

/** One client process. */
export class SoakClient {
  readonly #command: RunningCommand;
  readonly #label: string;

  /** Starts the client in a pod of the soak's namespace. */
  constructor(mesh: TestMesh, { pod, host, atOnce, pauseMs, kinds }: Traffic) {
    this.#label = `${pod} → ${host}`;
    const args = [CLIENT, host, String(atOnce), String(pauseMs), ...kinds];
    this.#command = mesh.inNetns(`soak-${pod}`, process.execPath, ...args);
  }

  /** Lets the client finish its running exchanges; rejects when it ended otherwise. */
  async stop(): Promise<void> {
    this.#command.kill();
    const { code, stderr } = await this.#command.exit;
    if (code !== 0) throw new Error(`${this.#label} ended with ${code}: ${stderr}`);
  }

  /** Counts the successful exchanges by kind. */
  counts(): Readonly<Partial<Record<Exchange, number>>> {
    return this.#lines().findLast((line) => 'counts' in line)?.counts ?? {};
  }

  /** Lists the failed exchanges. */
  failures(): readonly string[] {
    return this.#lines().flatMap((line) =>
      'failure' in line ? [`${this.#label}: ${line.failure.exchange}: ${line.failure.reason}`] : [],
    );
  }

  #lines(): SoakLine[] {
    // Text after the last line break is an incomplete line.
    const lines = this.#command.output().split('\n').slice(0, -1);
    return lines.map((line) => JSON.parse(line) as SoakLine);
  }
}
