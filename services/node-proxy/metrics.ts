import { readFile, readdir } from 'node:fs/promises';
import type { ProxyPresence } from '../../lib/bus/catalog.ts';
import type { CrlStats } from '../../lib/identity/crl-file.ts';
import type { MetricRegistry } from '../../lib/metrics/registry.ts';
import type { PodCounters } from './pods/pod-manager.ts';
import type { StateStats } from './state-thread/protocol.ts';

/** Returns the values of gauges at a scrape. */
export interface NodeProxyGauges {
  activePods(): number;
  pendingPods(): number;
  threads(): number;
  state(): StateStats | null;
  /** Pods that take no new connections and may finish those they have. */
  leavingPods(): number;
  /** Pods served by more than one thread. */
  sharedPods(): number;
  /** The proxies of the node, this one included. */
  proxies(): readonly ProxyPresence[];
  /** Proxies that this one hands its pods to; null where it does not. */
  siblings(): number | null;
  /** Null when no revocation lists are configured. */
  crl(): CrlStats | null;
}

/** Counters of the process itself; the listener threads count connections. */
export type NodeProxyMetrics = ReturnType<typeof nodeProxyMetrics>;

/** Declares all metrics of the process. */
export function nodeProxyMetrics(
  registry: MetricRegistry,
  istioVersion: string,
  gauges: NodeProxyGauges,
) {
  registry
    .gauge('istio_build', 'Istio component build info', ['component', 'tag'])
    .set({ component: 'ztunnel', tag: istioVersion }, 1);
  declarePodGauges(registry, gauges);
  declareProxies(registry, gauges);
  declareOptional(
    registry,
    'weft_node_proxy_zds_siblings',
    'Proxies of the node to which this one hands the pods of the node agent; no value unless it holds the session for others',
    () => gauges.siblings(),
  );
  declareStateGauges(registry, gauges);
  declareCrlGauges(registry, gauges);
  const count = (name: string, help: string): (() => void) => {
    const counter = registry.counter(name, help);
    return () => counter.inc();
  };
  return {
    pods: {
      started: count(
        'workload_manager_proxies_started_total',
        'The total number of proxies that were started',
      ),
      stopped: count(
        'workload_manager_proxies_stopped_total',
        'The total number of proxies that were stopped',
      ),
      lost: count(
        'weft_node_proxy_pods_lost_total',
        'Pods whose listener task ended without being told to; each is started again',
      ),
    } satisfies PodCounters,
    threadLost: count(
      'weft_node_proxy_threads_lost_total',
      'Listener threads that died and were replaced',
    ),
    /** A thread left a report unanswered, so a scrape or listing lacks its part. */
    reportMissed: count(
      'weft_node_proxy_reports_missed_total',
      'Reports that a listener thread did not give in time',
    ),
    zdsSession: count('weft_node_proxy_zds_sessions_total', 'Sessions with the node agent'),
    /** A further thread listens for a pod. */
    shared: count(
      'weft_node_proxy_shares_total',
      'Times a further thread began to listen for a pod whose thread was saturated',
    ),
  };
}

function declarePodGauges(registry: MetricRegistry, gauges: NodeProxyGauges): void {
  const declare = (name: string, help: string, read: () => number): void => {
    registry.gauge(name, help, [], (gauge) => gauge.set(read()));
  };
  declare(
    'workload_manager_active_proxy_count',
    'The total number current workloads with active proxies',
    () => gauges.activePods(),
  );
  declare(
    'workload_manager_pending_proxy_count',
    'The total number current workloads with pending proxies',
    () => gauges.pendingPods(),
  );
  declare(
    'weft_node_proxy_draining_pods',
    'Pods that take no new connections here and may finish those they have',
    () => gauges.leavingPods(),
  );
  declare('weft_node_proxy_shared_pods', 'Pods served by more than one listener thread', () =>
    gauges.sharedPods(),
  );
  declare('weft_node_proxy_threads', 'Listener threads that take pods', () => gauges.threads());
}

/** Declares gauges of all proxies of the node, because those that drain have left the port that is scraped. */
function declareProxies(registry: MetricRegistry, gauges: NodeProxyGauges): void {
  const declare = (name: string, help: string, read: (proxy: ProxyPresence) => number): void => {
    registry.gauge(name, help, ['generation', 'state'], (gauge) => {
      gauge.reset();
      for (const proxy of gauges.proxies()) {
        gauge.inc({ generation: String(proxy.group), state: proxy.state }, read(proxy));
      }
    });
  };
  declare(
    'weft_node_proxy_processes',
    'Proxies of this node, by generation and by whether they serve or drain',
    () => 1,
  );
  declare(
    'weft_node_proxy_resident_bytes',
    'Memory of the proxies of this node, by generation and by whether they serve or drain',
    ({ residentBytes }) => residentBytes,
  );
}

function declareStateGauges(registry: MetricRegistry, gauges: NodeProxyGauges): void {
  registry.gauge('weft_state_objects', 'Objects of the mesh state, by kind', ['kind'], (gauge) => {
    const stats = gauges.state();
    if (stats === null) return;
    gauge.set({ kind: 'workload' }, stats.workloads);
    gauge.set({ kind: 'service' }, stats.services);
    gauge.set({ kind: 'policy' }, stats.policies);
    gauge.set({ kind: 'rejected-policy' }, stats.rejectedPolicies);
  });
  registry.gauge(
    'weft_state_unreadable_rows',
    'Rows of the mesh state that could not be decoded since the start; the last good ones stay in force',
    [],
    (gauge) => gauge.set(gauges.state()?.unreadableRows ?? 0),
  );
  registry.gauge(
    'weft_state_names',
    'Names on demand: answered, in use here, waited for by lookups; none where the whole mesh is followed',
    ['state'],
    (gauge) => {
      const stats = gauges.state()?.onDemand ?? null;
      if (stats === null) return;
      gauge.set({ state: 'answered' }, stats.answered);
      gauge.set({ state: 'used' }, stats.used);
      gauge.set({ state: 'waited' }, stats.waited);
    },
  );
  registry.gauge(
    'weft_state_names_refused',
    'Lookups on demand since the start that were not asked for: too many of a pod, or of all',
    [],
    (gauge) => gauge.set(gauges.state()?.onDemand?.refused ?? 0),
  );
  registry.gauge(
    'weft_policy_programs',
    'Decision programs in use since the start, by who compiled them',
    ['by'],
    (gauge) => {
      const stats = gauges.state();
      gauge.set({ by: 'evaluator' }, stats?.programsReceived ?? 0);
      gauge.set({ by: 'node-proxy' }, stats?.programsCompiled ?? 0);
    },
  );
}

/** Declares a gauge that has no value while it reads null. */
function declareOptional(
  registry: MetricRegistry,
  name: string,
  help: string,
  read: () => number | null,
): void {
  registry.gauge(name, help, [], (gauge) => {
    const value = read();
    if (value === null) gauge.remove({});
    else gauge.set(value);
  });
}

/** Declares gauges that have a value only when lists are configured. */
function declareCrlGauges(registry: MetricRegistry, gauges: NodeProxyGauges): void {
  const declare = (name: string, help: string, pick: (stats: CrlStats) => number): void =>
    declareOptional(registry, name, help, () => {
      const stats = gauges.crl();
      return stats === null ? null : pick(stats);
    });
  declare('weft_crl_lists', 'Revocation lists in force', ({ lists }) => lists);
  declare('weft_crl_entries', 'Certificates that the lists revoke', ({ entries }) => entries);
  declare(
    'weft_crl_overdue_lists',
    'Lists in force whose next update is overdue',
    ({ overdue }) => overdue,
  );
  declare(
    'weft_crl_refused_updates',
    'Updates of the file since the start that could not be used; the last good lists stay in force',
    ({ refused }) => refused,
  );
}

/** Counts the open descriptors of the process. `max` is null when /proc names no limit. */
export async function descriptorCounts(): Promise<{ open: number; max: number | null }> {
  const [open, limits] = await Promise.all([
    readdir('/proc/self/fd'),
    readFile('/proc/self/limits', 'utf8'),
  ]);
  const max = /^Max open files\s+(\d+)/m.exec(limits)?.[1];
  return { open: open.length, max: max === undefined ? null : Number(max) };
}
