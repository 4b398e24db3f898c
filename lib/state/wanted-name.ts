/** Names of Address resources by which a client on demand asks for them (docs/spec/istiod-ambient.md §3.2). Pure. */
import { tryCanonicalIp } from '../net/address.ts';
import type { LookupKey } from './view.ts';

/** Row of the table `names` that is there while the mesh is followed on demand. It is no name. */
export const ON_DEMAND_ROW = '*';

/** Longest name that is asked for: a network's id, or a namespace, and a host name of 253 characters. */
export const WANTED_NAME_CHARS_MAX = 512;

/** The keys that have a name. A host name without its namespace has none. */
export type NamedKey = Exclude<LookupKey, { readonly kind: 'hostname' }>;

/** Returns the name to ask for: `network/ip`, `namespace/hostname`, or a workload's uid. */
export function wantedName(key: NamedKey): string {
  switch (key.kind) {
    case 'address':
      return `${key.network}/${key.ip}`;
    case 'service':
      return `${key.namespace}/${key.hostname}`;
    case 'uid':
      return key.uid;
  }
}

/** Returns the lookup that a name stands for; null when it is none: empty, too long, or without a slash. */
export function keyOfWanted(name: string): NamedKey | null {
  const slash = name.indexOf('/');
  if (slash === -1 || name.length > WANTED_NAME_CHARS_MAX) return null;
  const [before, after] = [name.slice(0, slash), name.slice(slash + 1)];
  if (after.includes('/')) return { kind: 'uid', uid: name };
  const ip = tryCanonicalIp(after);
  if (ip !== null) return ip === after ? { kind: 'address', network: before, ip } : null;
  return before === '' || after === ''
    ? null
    : { kind: 'service', namespace: before, hostname: after };
}
