import { lookup } from 'node:dns/promises';
import type { Clock } from '../../lib/clock/clock.ts';
import { withTimeLimit } from '../../lib/clock/time-limit.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { canonicalIp } from '../../lib/net/address.ts';
import { pickResolved } from '../../lib/state/destination-ip.ts';
import { MAX_NAME_LOOKUPS, NAME_WAIT_MS } from './limits.ts';

/** A name with the family the client would rather have. */
export interface NameToResolve {
  readonly hostname: string;
  readonly preferredFamily: 4 | 6;
}

/** How names are looked up. */
export interface LookupOptions {
  readonly ipv6: boolean;
  readonly clock: Clock;
  /** The system's resolver, unless it is another. */
  readonly addresses?: (hostname: string, family: 0 | 4) => Promise<readonly string[]>;
}

/**
 * Looks up names by the system's resolver. It takes half a minute for each of a few names at once where its servers are
 * silent, and cannot be told to stop: connections to one name share a lookup, and there are only so many.
 */
export class NameLookups {
  readonly #clock: Clock;
  readonly #family: 0 | 4;
  readonly #addresses: NonNullable<LookupOptions['addresses']>;
  /** By name; all are of one family. */
  readonly #underWay = new Map<string, Promise<readonly string[]>>();

  constructor({ ipv6, clock, addresses = systemAddresses }: LookupOptions) {
    this.#clock = clock;
    this.#family = ipv6 ? 0 : 4;
    this.#addresses = addresses;
  }

  /** Names that are being looked up, also for connections that gave up. */
  get underWay(): number {
    return this.#underWay.size;
  }

  /**
   * An address of the name, picked at random within the preferred family, or else within the other. Rejects with
   * ROUTE_NO_UPSTREAM, also when there is no answer in time or too many other names are under way.
   */
  async resolve({ hostname, preferredFamily }: NameToResolve): Promise<string> {
    try {
      const limit = { limitMs: NAME_WAIT_MS, what: 'no answer', release: () => undefined };
      const answers = await withTimeLimit(this.#clock, this.#lookup(hostname), limit);
      const picked = pickResolved(answers.map(canonicalIp), preferredFamily, Math.random);
      if (picked !== null) return picked;
    } catch (error) {
      const why = `cannot resolve ${hostname}: ${errorText(error)}`;
      throw new MeshError('ROUTE_NO_UPSTREAM', why, { cause: error });
    }
    throw new MeshError('ROUTE_NO_UPSTREAM', `${hostname} has no address`);
  }

  #lookup(hostname: string): Promise<readonly string[]> {
    const name = hostname.toLowerCase();
    const known = this.#underWay.get(name);
    if (known !== undefined) return known;
    if (this.#underWay.size >= MAX_NAME_LOOKUPS) {
      throw new MeshError(
        'ROUTE_NO_UPSTREAM',
        `${MAX_NAME_LOOKUPS} other names are being looked up`,
      );
    }
    const asked = this.#addresses(name, this.#family).finally(() => this.#underWay.delete(name));
    this.#underWay.set(name, asked);
    return asked;
  }
}

async function systemAddresses(hostname: string, family: 0 | 4): Promise<readonly string[]> {
  const answers = await lookup(hostname, { all: true, family });
  return answers.map(({ address }) => address);
}
