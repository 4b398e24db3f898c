/** The program of the clients, seen from the program that starts it. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';

/** One line that the program of the clients prints. */
export interface ClientAnswer {
  readonly done: boolean;
  readonly ms: number;
  readonly bytes: number;
  readonly lost: number;
  readonly reasons: readonly string[] | null;
  readonly count: number;
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

/** The program of the clients. */
export class Clients {
  readonly #process: ChildProcess;
  readonly #answers: AsyncIterator<string>;

  /** `name` is that of the server's certificate, where it is not the host of the address. */
  constructor(program: string, address: string, rootCa: string, token = 'bench', name = '') {
    const options = ['-address', address, '-ca', rootCa, '-token', token, '-name', name];
    this.#process = spawn(program, options, {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    const { stdout } = this.#process;
    if (stdout === null) throw new TypeError('the clients have no output');
    this.#answers = createInterface({ input: stdout })[Symbol.asyncIterator]();
  }

  say(command: string): Promise<ClientAnswer> {
    this.#process.stdin?.write(`${command}\n`);
    return this.answer();
  }

  async answer(): Promise<ClientAnswer> {
    const line = await this.#answers.next();
    if (line.done === true) throw new Error('the clients have ended');
    const answer = JSON.parse(line.value) as ClientAnswer;
    if (!answer.done) {
      const why = `lost ${answer.lost}: ${String(answer.reasons)}`;
      process.stdout.write(`  NOT DONE in time; ${why}\n`);
    }
    return answer;
  }

  stop(): void {
    this.#process.stdin?.end();
    this.#process.kill();
  }
}
