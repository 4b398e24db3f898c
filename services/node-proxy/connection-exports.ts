import type { Clock, Timer } from '../../lib/clock/clock.ts';
import type { TelemetryExport } from '../../lib/otlp/export-port.ts';
import { EXPORT_POLL_MS } from './limits.ts';
import type { ThreadHandle } from './pool/thread-handle.ts';

/** Collaborators of {@link ConnectionExports}. */
export interface ConnectionExportsDeps {
  readonly clock: Clock;
  readonly to: TelemetryExport;
  threads(): Iterable<Pick<ThreadHandle, 'exports'>>;
  /** A thread did not answer; its connections are fetched the next time. */
  missed(error: unknown): void;
}

/** Fetches the connections that listener threads keep for export, so that no thread has to send or wait. */
export class ConnectionExports {
  readonly #deps: ConnectionExportsDeps;
  #timer: Timer | null = null;
  #fetching: Promise<void> | null = null;

  constructor(deps: ConnectionExportsDeps) {
    this.#deps = deps;
    if (deps.to.connections !== null) {
      this.#timer = deps.clock.every(EXPORT_POLL_MS, () => this.#poll());
    }
  }

  /** Fetches for the last time. Idempotent. */
  async close(): Promise<void> {
    if (this.#timer === null) return;
    this.#timer.cancel();
    this.#timer = null;
    await this.#fetching;
    await this.#fetch();
  }

  #poll(): void {
    this.#fetching ??= this.#fetch().finally(() => (this.#fetching = null));
  }

  async #fetch(): Promise<void> {
    const { to, threads, missed } = this.#deps;
    await Promise.all(
      [...threads()].map(async (thread) => {
        try {
          const { connections, dropped } = await thread.exports();
          to.add(connections, dropped);
        } catch (error) {
          missed(error);
        }
      }),
    );
  }
}
