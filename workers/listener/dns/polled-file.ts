import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { Clock } from '../../../lib/clock/clock.ts';
import { parseHosts } from '../../../lib/dns/hosts-file.ts';
import type { Hosts } from '../../../lib/dns/hosts-file.ts';
import { parseResolvConf } from '../../../lib/dns/resolv-conf.ts';
import type { ResolverConfig } from '../../../lib/dns/resolv-conf.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { FILE_CHECK_MS, MAX_FILE_CHARACTERS } from './limits.ts';

/** Dependencies of {@link PolledFile}. */
export interface PolledFileDeps {
  readonly clock: Clock;
  readonly log: Logger;
}

/** The parsed content of a file, read again while it is used; a file that goes away changes nothing. */
export class PolledFile<Parsed> {
  readonly #path: string;
  readonly #parse: (text: string) => Parsed;
  readonly #deps: PolledFileDeps;
  #text = '';
  #parsed: Parsed;
  #checkedMs: number;
  #reading = false;
  /** Why the file could not be read last, null when it was; each reason is logged once. */
  #problem: string | null = null;

  /** `parse` reads any text, the empty one too, and says what it found. */
  constructor(path: string, parse: (text: string) => Parsed, deps: PolledFileDeps) {
    this.#path = path;
    this.#parse = parse;
    this.#deps = deps;
    this.#parsed = parse('');
    this.#checkedMs = deps.clock.monotonic();
    try {
      this.#take(readFileSync(path, 'utf8'));
    } catch (error) {
      this.#unreadable(error);
    }
  }

  /** The content as it was read last; never waits. */
  get current(): Parsed {
    const now = this.#deps.clock.monotonic();
    if (now - this.#checkedMs >= FILE_CHECK_MS && !this.#reading) {
      this.#checkedMs = now;
      this.#reading = true;
      void this.#readAgain();
    }
    return this.#parsed;
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
    this.#problem = null;
    if (text === this.#text) return;
    this.#text = text;
    this.#parsed = this.#parse(text.slice(0, MAX_FILE_CHARACTERS));
  }

  #unreadable(error: unknown): void {
    const problem = errorText(error);
    if (problem === this.#problem) return;
    this.#problem = problem;
    this.#deps.log.warn({ path: this.#path, error: problem }, 'dns.file-unreadable');
  }
}

/** The resolver configuration of a file. */
export type Resolvers = Pick<PolledFile<ResolverConfig>, 'current'>;

/** Follows a file in the format of resolv.conf(5). */
export function followResolvConf(path: string, deps: PolledFileDeps): Resolvers {
  const parse = (text: string): ResolverConfig => {
    const config = parseResolvConf(text);
    if (text !== '') deps.log.info({ path, servers: config.servers }, 'dns.resolvers-read');
    return config;
  };
  return new PolledFile(path, parse, deps);
}

/** Follows a file in the format of hosts(5). */
export function followHosts(
  path: string,
  deps: PolledFileDeps,
): Pick<PolledFile<Hosts>, 'current'> {
  return new PolledFile(path, parseHosts, deps);
}
