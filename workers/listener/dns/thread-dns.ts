import { systemClock } from '../../../lib/clock/clock.ts';
import { AnswerCache } from '../../../lib/dns/answer-cache.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import type { SeriesWriter } from '../../../lib/metrics/series-memory.ts';
import { DnsMetrics } from './metrics.ts';
import { followHosts, followResolvConf } from './polled-file.ts';
import type { Resolvers } from './polled-file.ts';
import { NAME_CACHE_BYTES } from '../limits.ts';
import type { DnsSettings, ListenerSettings } from '../protocol/settings.ts';
import type { SharedNames } from './endpoint-names.ts';

const HOSTS_FILE = '/etc/hosts';

/** What the DNS proxies of a thread share. */
export interface ThreadDns {
  readonly settings: DnsSettings;
  readonly metrics: DnsMetrics;
  readonly resolvers: Resolvers;
}

/** What the thread's look-ups of names share: name servers, the hosts file, answers. */
export function sharedNames({ resolvConf }: ListenerSettings, log: Logger): SharedNames {
  const deps = { clock: systemClock, log };
  return {
    resolvers: followResolvConf(resolvConf, deps),
    hosts: followHosts(HOSTS_FILE, deps),
    cache: new AnswerCache(systemClock, NAME_CACHE_BYTES),
  };
}

/** What the DNS proxies of the thread's pods share; null when there are none. */
export function threadDns(
  { dns }: ListenerSettings,
  { resolvers }: SharedNames,
  series: SeriesWriter,
): ThreadDns | null {
  if (dns === null) return null;
  return { settings: dns, metrics: new DnsMetrics(series), resolvers };
}
