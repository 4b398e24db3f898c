import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { Clock } from '../../../lib/clock/clock.ts';
import { parseResolvConf } from '../../../lib/dns/resolv-conf.ts';
import type { ResolverConfig } from '../../../lib/dns/resolv-conf.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { MAX_RESOLV_CONF_BYTES, RESOLV_CONF_CHECK_MS } from './limits.ts';

/** The resolver configuration of a file, read again while it is used; a file that goes away changes nothing. */
export class Resolvers {
  readonly #path: string;
  readonly #clock: Clock;
  readonly #log: Logger;
  #text = '';
  #config: ResolverConfig = parseResolvConf('');
  #checkedMs: number;
  #reading = false;

  constructor(path: string, clock: Clock, log: Logger) {
    this.#path = path;
    this.#clock = clock;
    this.#log = log;
    this.#checkedMs = clock.monotonic();
    try {
      this.#take(readFileSync(path, 'utf8'));
    } catch (error) {
      this.#unreadable(error);
    }
  }

  /** The configuration as last read; never waits. */
  get current(): ResolverConfig {
    const now = this.#clock.monotonic();
    if (now - this.#checkedMs >= RESOLV_CONF_CHECK_MS && !this.#reading) {
      this.#checkedMs = now;
      this.#reading = true;
      void this.#readAgain();
    }
    return this.#config;
  }

  async #readAgain(): Promise<void> {
    try {
      this.#take(await readFile(this.#path, 'utf8'));
    } catch (error) {
      this.#unreadable(error);
    } finally {
      this.#reading = false;
    }
  }

  #take(text: string): void {
    if (text === this.#text) return;
    this.#text = text;
    this.#config = parseResolvConf(text.slice(0, MAX_RESOLV_CONF_BYTES));
    this.#log.info({ path: this.#path, servers: this.#config.servers }, 'dns.resolvers-read');
  }

  #unreadable(error: unknown): void {
    this.#log.warn({ path: this.#path, error: errorText(error) }, 'dns.resolvers-unreadable');
  }
}
