/** Adds pods, lets them exchange bytes, and removes them while the soak runs. */
import { errorText } from '../../lib/errors/mesh-error.ts';
import type { TestMesh } from '../support/mesh.ts';
import { until } from '../support/until.ts';
import { SoakClient } from './clients.ts';

/** Longer than the enrolment of a pod takes on a busy machine. */
const ENROL_TIMEOUT_MS = 30_000;
/** Exchanges that a pod makes before its removal. */
const EXCHANGES = 5;

/** Makes and removes pods, one at a time, until it is stopped. */
export class Churn {
  readonly failures: string[] = [];
  /** Pods added, used and removed so far. */
  pods = 0;
  readonly #ending = new AbortController();
  readonly #mesh: TestMesh;
  readonly #host: string;
  readonly #done: Promise<void>;

  /** `host` is the server of the pods' exchanges. */
  constructor(mesh: TestMesh, host: string) {
    this.#mesh = mesh;
    this.#host = host;
    this.#done = this.#run();
  }

  /** Stops; resolves when the last pod has been removed. */
  async stop(): Promise<void> {
    this.#ending.abort();
    await this.#done;
  }

  async #run(): Promise<void> {
    for (let turn = 1; !this.#ending.signal.aborted; turn += 1) {
      try {
        await this.#pod(`churn-${turn}`, `node-${(turn % 2) + 1}`);
        this.pods += 1;
      } catch (error) {
        this.failures.push(`churn-${turn}: ${errorText(error)}`);
      }
    }
  }

  async #pod(name: string, node: string): Promise<void> {
    const yaml = podYaml(name, node);
    await must(this.#mesh.apply(yaml));
    try {
      await until(async () => (await this.#mesh.pod('soak', name)).enrolled, {
        what: `${name} to be enrolled`,
        timeoutMs: ENROL_TIMEOUT_MS,
      });
      const traffic = {
        pod: name,
        host: this.#host,
        atOnce: 2,
        pauseMs: 10,
        kinds: ['small', 'down'],
      } as const;
      const client = new SoakClient(this.#mesh, traffic);
      await until(() => client.failures().length > 0 || sum(client.counts()) >= EXCHANGES, {
        what: `${EXCHANGES} exchanges of ${name}`,
        timeoutMs: ENROL_TIMEOUT_MS,
      });
      await client.stop();
      this.failures.push(...client.failures());
    } finally {
      await must(this.#mesh.delete(yaml));
    }
  }
}

function sum(counts: Readonly<Record<string, number>>): number {
  return Object.values(counts).reduce((total, count) => total + count, 0);
}

async function must(command: Promise<{ code: number | null; stderr: string }>): Promise<void> {
  const { code, stderr } = await command;
  if (code !== 0) throw new Error(stderr);
}

function podYaml(name: string, node: string): string {
  return `
apiVersion: v1
kind: Pod
metadata: { name: ${name}, namespace: soak, labels: { app: churn } }
spec:
  nodeName: ${node}
  serviceAccountName: churn
  containers: [{ name: churn, image: local, command: [sleep, infinity] }]
`;
}
