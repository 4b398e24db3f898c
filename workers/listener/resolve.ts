import { lookup } from 'node:dns/promises';
import type { Clock } from '../../lib/clock/clock.ts';
import { withTimeLimit } from '../../lib/clock/time-limit.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { canonicalIp } from '../../lib/net/address.ts';
import { pickResolved } from '../../lib/state/destination-ip.ts';
import { NAME_WAIT_MS } from './limits.ts';

/** A name with the family the client would rather have. */
export interface NameToResolve {
  readonly hostname: string;
  readonly preferredFamily: 4 | 6;
}

/** How names are looked up. */
export interface NameLookup {
  readonly ipv6: boolean;
  readonly clock: Clock;
  /** The system's resolver, unless it is another. */
  readonly addresses?: (hostname: string, family: 0 | 4) => Promise<readonly string[]>;
}

/**
 * An address of the name by the system's resolver, picked at random within the preferred family, or else within the
 * other. Rejects with ROUTE_NO_UPSTREAM, also when there is no answer in time: the resolver itself takes half a minute for each of a
 * few names at once where its servers are silent.
 */
export async function resolveName(
  { hostname, preferredFamily }: NameToResolve,
  { ipv6, clock, addresses = systemAddresses }: NameLookup,
): Promise<string> {
  try {
    const asked = addresses(hostname, ipv6 ? 0 : 4);
    const limit = { limitMs: NAME_WAIT_MS, what: 'no answer', release: () => undefined };
    const answers = await withTimeLimit(clock, asked, limit);
    const picked = pickResolved(answers.map(canonicalIp), preferredFamily, Math.random);
    if (picked !== null) return picked;
  } catch (error) {
    const why = `cannot resolve ${hostname}: ${errorText(error)}`;
    throw new MeshError('ROUTE_NO_UPSTREAM', why, { cause: error });
  }
  throw new MeshError('ROUTE_NO_UPSTREAM', `${hostname} has no address`);
}

async function systemAddresses(hostname: string, family: 0 | 4): Promise<readonly string[]> {
  const answers = await lookup(hostname, { all: true, family });
  return answers.map(({ address }) => address);
}
