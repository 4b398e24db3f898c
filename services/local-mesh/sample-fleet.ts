import { askJson } from './unix-http.ts';
import type { SamplePod } from './sample-server.ts';

/** Controls the default servers of all nodes. A repeated list is not sent again. */
export class SampleFleet {
  readonly #socketOf: (node: string) => string;
  readonly #served = new Map<string, { readonly list: string; readonly failures: Failures }>();

  constructor(socketOf: (node: string) => string) {
    this.#socketOf = socketOf;
  }

  /** Notes that the process of `node` was restarted and serves nothing. */
  forget(node: string): void {
    this.#served.delete(node);
  }

  /**
   * Makes the node serve exactly these pods. Resolves with the reason, by pod uid, for each pod that it cannot serve.
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
    // The next call tries a failed pod again.
    if (Object.keys(failures).length === 0) this.#served.set(node, { list, failures });
    else this.#served.delete(node);
    return failures;
  }
}

type Failures = Readonly<Record<string, string>>;
