import { askJson } from './unix-http.ts';
import type { SamplePod } from './sample-server.ts';

/** The default servers of all nodes, as the pod runtime steers them. Repeated lists cost nothing. */
export class SampleFleet {
  readonly #socketOf: (node: string) => string;
  readonly #served = new Map<string, { readonly list: string; readonly failures: Failures }>();

  constructor(socketOf: (node: string) => string) {
    this.#socketOf = socketOf;
  }

  /** The process of `node` was started anew and serves nothing. */
  forget(node: string): void {
    this.#served.delete(node);
  }

  /**
   * Has the node serve exactly these pods. Resolves with the reasons, by pod uid, of those that cannot be.
   * Throws STATE_UNAVAILABLE while the process does not answer.
   */
  async serve(node: string, pods: readonly SamplePod[]): Promise<Failures> {
    const list = JSON.stringify(pods);
    const last = this.#served.get(node);
    if (last !== undefined && last.list === list) return last.failures;
    const { failures } = await askJson<{ failures: Failures }>({
      socket: this.#socketOf(node),
      method: 'PUT',
      path: '/pods',
      body: { pods },
    });
    // A failed pod is tried again with the next call.
    if (Object.keys(failures).length === 0) this.#served.set(node, { list, failures });
    else this.#served.delete(node);
    return failures;
  }
}

type Failures = Readonly<Record<string, string>>;
