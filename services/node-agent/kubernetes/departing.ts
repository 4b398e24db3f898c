/** Asks, while the agent ends, whether it leaves its node for good, and whether it still does. */
import { pause } from '../../../lib/clock/clock.ts';
import type { Clock } from '../../../lib/clock/clock.ts';
import { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import type { ConnectionSource } from '../../../lib/kubernetes/connection.ts';
import { findConnection } from '../../../lib/kubernetes/connection.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { DEPARTURE_LOOK_MS } from '../limits.ts';
import { AGENT_DAEMON_SET, readDeparture } from './departure.ts';
import type { Departure } from './departure.ts';

/** Where an agent that ends asks about its place. */
export interface DepartureSource {
  readonly connection: ConnectionSource;
  /** The namespace of the agent's own pod. */
  readonly namespace: string;
}

/** Ports of a {@link Departing}. */
export interface DepartingDeps {
  readonly clock: Clock;
  readonly log: Pick<Logger, 'info'>;
}

/** Asks while the process still has its rights. The owner disposes it. */
export class Departing implements Disposable {
  readonly #client: KubernetesClient;
  readonly #place: { readonly namespace: string; readonly node: string };
  readonly #deps: DepartingDeps;

  private constructor(
    client: KubernetesClient,
    place: { readonly namespace: string; readonly node: string },
    deps: DepartingDeps,
  ) {
    this.#client = client;
    this.#place = place;
    this.#deps = deps;
  }

  /** Connects. Throws as `findConnection`. */
  static async open(
    { connection, namespace }: DepartureSource,
    node: string,
    deps: DepartingDeps,
  ): Promise<Departing> {
    const found = await findConnection(connection);
    const client = new KubernetesClient(found, { clock: deps.clock, userAgent: 'weft-node-agent' });
    return new Departing(client, { namespace, node }, deps);
  }

  /** Returns whether the agent leaves the node for good. */
  async leaves(): Promise<boolean> {
    const departure = await this.#ask();
    this.#deps.log.info({ ...departure }, 'agent.departure-decided');
    return departure.leaves;
  }

  /**
   * Returns whether the DaemonSet has come back to the node since the departure began: its next agent needs what this one would
   * remove. An uninstallation may take the rights to ask meanwhile, and goes on then.
   */
  async isReplaced(): Promise<boolean> {
    const { leaves, told, reason } = await this.#ask();
    const replaced = told && !leaves;
    if (replaced) this.#deps.log.info({ reason }, 'agent.departure-ended');
    return replaced;
  }

  /**
   * Looks for the DaemonSet while `work` goes on, and at its end. Resolves with true as soon as it is back: the caller ends the work
   * then. Rejects as the work does.
   */
  async isReplacedDuring(work: Promise<void>): Promise<boolean> {
    const over = new AbortController();
    const end = (): void => over.abort();
    work.then(end, end);
    while (!over.signal.aborted) {
      await pause(this.#deps.clock, DEPARTURE_LOOK_MS, over.signal);
      if (await this.isReplaced()) return true;
    }
    await work;
    return false;
  }

  #ask(): Promise<Departure> {
    return readDeparture(this.#client, { ...this.#place, daemonSet: AGENT_DAEMON_SET });
  }

  [Symbol.dispose](): void {
    this.#client.close();
  }
}
