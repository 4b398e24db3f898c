/** The clients of a soak, and what they report. */
import type { RunningCommand, TestMesh } from '../support/mesh.ts';
import type { Exchange, SoakLine } from './protocol.ts';

const CLIENT = new URL('client.ts', import.meta.url).pathname;

/** Who talks to whom, and how. */
export interface Traffic {
  readonly pod: string;
  readonly host: string;
  readonly atOnce: number;
  readonly kinds: readonly Exchange[];
}

/** One client process. */
export class SoakClient {
  readonly #command: RunningCommand;
  readonly #label: string;

  /** Starts it in a pod of the soak's namespace. */
  constructor(mesh: TestMesh, { pod, host, atOnce, kinds }: Traffic) {
    this.#label = `${pod} → ${host}`;
    const args = [CLIENT, host, String(atOnce), ...kinds];
    this.#command = mesh.inNetns(`soak-${pod}`, process.execPath, ...args);
  }

  /** Lets it finish what it has in hand; rejects when it ended otherwise. */
  async stop(): Promise<void> {
    this.#command.kill();
    const { code, stderr } = await this.#command.exit;
    if (code !== 0) throw new Error(`${this.#label} ended with ${code}: ${stderr}`);
  }

  /** Exchanges that went as they should, by kind. */
  counts(): Readonly<Partial<Record<Exchange, number>>> {
    return this.#lines().findLast((line) => 'counts' in line)?.counts ?? {};
  }

  /** Exchanges that did not. */
  failures(): readonly string[] {
    return this.#lines().flatMap((line) =>
      'failure' in line ? [`${this.#label}: ${line.failure.exchange}: ${line.failure.reason}`] : [],
    );
  }

  #lines(): SoakLine[] {
    // What follows the last line break is not a whole line yet.
    const lines = this.#command.output().split('\n').slice(0, -1);
    return lines.map((line) => JSON.parse(line) as SoakLine);
  }
}
