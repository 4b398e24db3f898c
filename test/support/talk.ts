/** A connection from a namespace that a test keeps open and checks now and then. */
import type { RunningCommand, TestMesh } from './mesh.ts';
import { until } from './until.ts';

/** Each line on standard input sends one request over the one connection; answers go to standard output. */
const SCRIPT = `exec 3<>"/dev/tcp/$0/8080" || exit 9
cat <&3 &
while read -r _; do printf 'GET / HTTP/1.1\\r\\nHost: talk\\r\\n\\r\\n' >&3; done
kill $!`;

/** One kept connection to a default server. */
export class Talk {
  readonly #command: RunningCommand;
  readonly #name: string;

  private constructor(command: RunningCommand, name: string) {
    this.#command = command;
    this.#name = name;
  }

  /** Connects from a namespace (`demo-client`) to port 8080 of the pod called `name`, and waits for one answer. */
  static async open(mesh: TestMesh, netns: string, ip: string, name: string): Promise<Talk> {
    const talk = new Talk(mesh.inNetns(netns, 'bash', '-c', SCRIPT, ip), name);
    await talk.hears('at first');
    return talk;
  }

  /** Sends a request over the connection and waits for the answer. */
  async hears(when: string): Promise<void> {
    const before = this.#answers();
    this.#command.stdin.write('\n');
    await until(() => this.#answers() > before, {
      what: `an answer of ${this.#name} over the kept connection ${when}`,
    });
  }

  /** Closes the connection. */
  async close(): Promise<void> {
    this.#command.stdin.end();
    await this.#command.exit;
  }

  #answers(): number {
    return this.#command.output().split(`"name":"${this.#name}"`).length - 1;
  }
}
