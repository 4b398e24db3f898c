import type { Clock, Timer } from '../clock/clock.ts';
import type { Endpoint } from '../config/fields.ts';
import { errorText } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';
import { HttpServer } from '../http/http-server.ts';
import type { RouteTable } from '../http/routes.ts';

/** Time between attempts to take an address that another process holds, usually an older process of the same actor. */
const RETRY_MS = 2_000;

/** Serves metrics and readiness to scrapers, and the debug pages of actors that have some. Anybody may call it. */
export class MetricsListener {
  readonly #server: HttpServer;
  readonly #endpoint: Endpoint;
  readonly #clock: Clock;
  readonly #log: Logger;
  #retry: Timer | null = null;
  #warned = false;
  #closed = false;

  constructor(
    endpoint: Endpoint,
    routes: RouteTable,
    deps: { readonly clock: Clock; readonly log: Logger },
  ) {
    this.#endpoint = endpoint;
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#server = new HttpServer(routes.handle, { name: 'metrics', log: deps.log });
  }

  /** Listens now, or as soon as the address is free. Rejects for any other failure. */
  async listen(): Promise<void> {
    try {
      await this.#server.listen(this.#endpoint);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
      if (!this.#warned) this.#log.warn({ error: errorText(error) }, 'metrics.address-taken');
      this.#warned = true;
      if (!this.#closed) this.#retry = this.#clock.after(RETRY_MS, () => this.#again());
    }
  }

  #again(): void {
    this.listen().catch((error: unknown) =>
      this.#log.error({ error: errorText(error) }, 'metrics.not-served'),
    );
  }

  /** The TCP port listened on; null while it does not listen. */
  get port(): number | null {
    return this.#server.port;
  }

  /** Stops. Idempotent. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#retry?.cancel();
    await this.#server.close();
  }
}
