import { lookup } from 'node:dns/promises';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { canonicalIp } from '../../lib/net/address.ts';
import { pickResolved } from '../../lib/state/destination-ip.ts';

/** A name with the family the client would rather have. */
export interface NameToResolve {
  readonly hostname: string;
  readonly preferredFamily: 4 | 6;
}

/**
 * An address of the name by the system's resolver, picked at random within the preferred family, or else within the
 * other. Rejects with ROUTE_NO_UPSTREAM.
 */
export async function resolveName(name: NameToResolve, ipv6: boolean): Promise<string> {
  const { hostname, preferredFamily } = name;
  try {
    const answers = await lookup(hostname, { all: true, family: ipv6 ? 0 : 4 });
    const addresses = answers.map(({ address }) => canonicalIp(address));
    const picked = pickResolved(addresses, preferredFamily, Math.random);
    if (picked !== null) return picked;
  } catch (error) {
    const why = `cannot resolve ${hostname}: ${errorText(error)}`;
    throw new MeshError('ROUTE_NO_UPSTREAM', why, { cause: error });
  }
  throw new MeshError('ROUTE_NO_UPSTREAM', `${hostname} has no address`);
}
