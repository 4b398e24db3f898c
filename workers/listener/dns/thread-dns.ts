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

/** Shared parts of the DNS proxies of a thread. */
export interface ThreadDns {
  readonly settings: DnsSettings;
  readonly metrics: DnsMetrics;
  readonly resolvers: Resolvers;
}

/** Makes the shared parts of a thread's look-ups: name servers, the hosts file, answers. */
export function sharedNames({ resolvConf }: ListenerSettings, log: Logger): SharedNames {
  const deps = { clock: systemClock, log };
  return {
    resolvers: followResolvConf(resolvConf, deps),
    hosts: followHosts(HOSTS_FILE, deps),
    cache: new AnswerCache(systemClock, NAME_CACHE_BYTES),
  };
}

/** Makes the shared parts of the DNS proxies of a thread; null when the DNS proxy is off. */
export function threadDns(
  { dns }: ListenerSettings,
  { resolvers }: SharedNames,
  series: SeriesWriter,
): ThreadDns | null {
  if (dns === null) return null;
  return { settings: dns, metrics: new DnsMetrics(series), resolvers };
}
