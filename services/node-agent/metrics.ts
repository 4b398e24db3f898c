import type { MetricRegistry } from '../../lib/metrics/registry.ts';
import type { ZdsAgentCounters } from '../../lib/zds/agent.ts';

/**
 * The state of a pod's enrolment. `outside`: not to be enrolled. `waiting`: its namespace or rules are not ready. `pending`: it
 * has its rules, and no proxy has confirmed it. `enabled`: a proxy serves it. `leaving`: its carried connections may end.
 */
export type PodState = 'outside' | 'waiting' | 'pending' | 'enabled' | 'leaving';

/**
 * A pod that is to be enrolled and certainly lacks rules, because they cannot be written. `cut`: its network is closed. `open`: it
 * goes on without protection, as enough pods of the node were cut off (docs/decisions/cut-off.md).
 */
export type Exposure = 'cut' | 'open';

/** The agent's counters, with upstream's names where upstream has one (docs/spec/cni.md §9). */
export interface AgentMetrics {
  event(type: 'add' | 'update' | 'delete'): void;
  driftRepaired(kind: 'rules' | 'listeners'): void;
  reconcileFailed(code: string): void;
  cutOff(): void;
  rulesWritten(seconds: number): void;
  sourceProblem(kind: 'record' | 'directory' | 'engine'): void;
}

/** Values that are read at every scrape. */
export interface MetricSources {
  readonly states: () => ReadonlyMap<PodState, number>;
  readonly exposures: () => ReadonlyMap<Exposure, number>;
  readonly proxies: () => number;
  readonly zds: () => ZdsAgentCounters;
}

/** Bounds of the time to write the rules of one pod, which takes a dozen processes. */
const WRITE_SECONDS_BUCKETS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5, 10];

/** Declares the agent's metrics. */
export function agentMetrics(registry: MetricRegistry, sources: MetricSources): AgentMetrics {
  declareZds(registry, sources);
  registry.gauge(
    'nodeagent_enrolments',
    'Pods by the state of their enrolment',
    ['state'],
    (gauge) => {
      gauge.reset();
      for (const [state, count] of sources.states()) gauge.set({ state }, count);
    },
  );
  registry.gauge(
    'nodeagent_pods_without_rules',
    'Pods to be enrolled whose rules are missing and cannot be written: cut off, or open',
    ['state'],
    (gauge) => {
      gauge.reset();
      for (const [state, count] of sources.exposures()) gauge.set({ state }, count);
    },
  );
  const cuts = registry.counter('nodeagent_cuts_total', 'Pods cut off for want of rules');
  const events = registry.counter(
    'nodeagent_reconcile_events_total',
    'Pods that came, changed or went',
    ['type'],
  );
  const drift = registry.counter(
    'nodeagent_drift_repaired_total',
    'Pods whose rules or listeners were found missing and put back',
    ['kind'],
  );
  for (const kind of ['rules', 'listeners'] as const) drift.inc({ kind }, 0);
  const failures = registry.counter(
    'nodeagent_reconcile_failures_total',
    'Attempts to bring a pod to its state that failed, by error code',
    ['code'],
  );
  const writes = registry.histogram(
    'nodeagent_rules_write_seconds',
    'Time to write and verify the rules of one pod',
    WRITE_SECONDS_BUCKETS,
  );
  const problems = registry.counter(
    'nodeagent_pod_source_problems_total',
    'Pod records found malformed, and times the pod directory or the Docker engine became unreadable',
    ['kind'],
  );
  for (const kind of ['record', 'directory', 'engine'] as const) problems.inc({ kind }, 0);
  return {
    event: (type) => events.inc({ type }),
    driftRepaired: (kind) => drift.inc({ kind }),
    cutOff: () => cuts.inc(),
    reconcileFailed: (code) => failures.inc({ code }),
    rulesWritten: (seconds) => writes.observe(seconds),
    sourceProblem: (kind) => problems.inc({ kind }),
  };
}

function declareZds(registry: MetricRegistry, sources: MetricSources): void {
  const accepted = registry.counter('nodeagent_zds_connections_total', 'Proxies that connected');
  const broken = registry.counter(
    'nodeagent_zds_broken_total',
    'Connections ended for a protocol error or an answer that stayed out',
  );
  const refused = registry.counter('nodeagent_zds_refused_total', 'Adds a proxy refused');
  let last: ZdsAgentCounters = { accepted: 0, broken: 0, refused: 0 };
  registry.gauge('ztunnel_connected', 'Proxies on the ZDS socket', [], (gauge) => {
    gauge.set(sources.proxies());
    const now = sources.zds();
    accepted.inc(now.accepted - last.accepted);
    broken.inc(now.broken - last.broken);
    refused.inc(now.refused - last.refused);
    last = { ...now };
  });
}
