import { isHostName } from './request.ts';
import type { ResolverConfig } from './resolv-conf.ts';

/**
 * The names a host name may mean, in the order in which they are asked for (resolv.conf(5), `search` and `ndots`): a dot
 * at the end says that it is meant as it is. Lower case and without that dot; none of a name that cannot be asked for.
 */
export function searchNames(
  hostname: string,
  { search, ndots }: Pick<ResolverConfig, 'search' | 'ndots'>,
): readonly string[] {
  const lower = hostname.toLowerCase();
  const name = lower.replace(/\.$/, '');
  if (name !== lower) return [name].filter(isHostName);
  const longer = search.map((domain) => `${name}.${domain}`);
  const dots = name.split('.').length - 1;
  const names = dots >= ndots ? [name, ...longer] : [...longer, name];
  return [...new Set(names)].filter(isHostName);
}
