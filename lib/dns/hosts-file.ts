import { tryCanonicalIp } from '../net/address.ts';

/** Names with their addresses, canonical and in the order of the file. */
export type Hosts = ReadonlyMap<string, readonly string[]>;

/** Reads the text of a hosts file (hosts(5)); names come out in lower case. It skips lines that it does not understand. */
export function parseHosts(text: string): Hosts {
  const hosts = new Map<string, string[]>();
  for (const line of text.split('\n')) {
    const [first = '', ...names] = (line.split('#')[0] ?? '').trim().split(/\s+/);
    const address = tryCanonicalIp(first);
    if (address === null) continue;
    for (const name of names) {
      const key = name.toLowerCase().replace(/\.$/, '');
      const known = hosts.get(key);
      if (known === undefined) hosts.set(key, [address]);
      else known.push(address);
    }
  }
  return hosts;
}
