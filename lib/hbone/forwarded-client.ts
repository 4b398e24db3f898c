/** Checks the address that a waypoint names as its client (`Forwarded: for=`, docs/decisions/waypoint-enforcement.md). Pure. */
import { MeshError } from '../errors/mesh-error.ts';
import { tryParseIp } from '../net/address.ts';
import { parsePrefix, prefixContains } from '../net/prefix.ts';
import { DEFAULT_PROBE_ADDRESS } from '../redirect/rules.ts';
import { parseForwardedFor } from './connect-request.ts';

/** Ranges that hold no client of a mesh, and the kind of their addresses. */
const IMPOSSIBLE = (
  [
    ['127.0.0.0/8', 'a loopback address'],
    ['0.0.0.0/8', 'an unspecified address'],
    [DEFAULT_PROBE_ADDRESS.v4, "the address of the node's probes"],
    ['169.254.0.0/16', 'a link-local address'],
    ['224.0.0.0/4', 'a multicast address'],
    ['240.0.0.0/4', 'a reserved address'],
    ['::1', 'a loopback address'],
    // The unspecified address, and an obsolete form of IPv4 addresses.
    ['::/96', 'an unspecified address'],
    [DEFAULT_PROBE_ADDRESS.v6, "the address of the node's probes"],
    ['fe80::/10', 'a link-local address'],
    ['ff00::/8', 'a multicast address'],
  ] as const
).map(([range, what]) => ({ prefix: parsePrefix(range), what }));

/**
 * The client in the `for=` of a `forwarded` header, null when it names no address; the port is 0 where it is left out. Throws
 * ROUTE_ILLEGAL for an address that cannot be a client's: a loopback, unspecified, link-local, multicast or reserved one, that of
 * the node's probes, and each of `own`, the canonical addresses of the pod that is called. An application may trust them.
 */
export function forwardedClient(
  header: string | undefined,
  own: readonly string[],
): { readonly ip: string; readonly port: number } | null {
  const client = parseForwardedFor(header);
  if (client === null) return null;
  const wrong = own.includes(client.ip) ? "the pod's own address" : impossible(client.ip);
  if (wrong === null) return client;
  throw new MeshError(
    'ROUTE_ILLEGAL',
    `the waypoint names ${client.ip} as the client (Forwarded: for=), which is ${wrong}`,
  );
}

function impossible(ip: string): string | null {
  const address = tryParseIp(ip);
  if (address === null) return 'no address';
  return IMPOSSIBLE.find(({ prefix }) => prefixContains(prefix, address))?.what ?? null;
}
