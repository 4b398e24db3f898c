import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { PoolStats } from '../../lib/hbone/pool.ts';
import type { MetricSample } from './protocol.ts';

/** What a scrape asks of the thread's other parts. */
export interface ThreadGauges {
  readonly pods: number;
  readonly cachedAnswers: number;
  readonly pools: readonly PoolStats[];
}

/** Why an accepted connection was refused before anything was known of it. */
export type EarlyDenialReason = 'early-denial' | 'connection-limit' | 'handshake-limit';

/** Granularity of the event loop's measured delay, milliseconds. */
const LOOP_RESOLUTION_MS = 20;
const NS_PER_SECOND = 1e9;

/** Counters of a listener thread beside the traffic itself; plain fields, read at scrape. */
export class ThreadMetrics {
  handshakesAccepted = 0;
  handshakesRefused = 0;
  policyCuts = 0;
  connectRetries = 0;
  transparencyLost = 0;
  readonly earlyDenials: Record<EarlyDenialReason, number> = {
    'early-denial': 0,
    'connection-limit': 0,
    'handshake-limit': 0,
  };

  readonly #thread: string;
  readonly #loopDelay = monitorEventLoopDelay({ resolution: LOOP_RESOLUTION_MS });

  constructor(thread: number) {
    this.#thread = String(thread);
    this.#loopDelay.enable();
  }

  /** All values, with the gauges given; the event loop's delay is that since the last call. */
  samples(gauges: ThreadGauges): MetricSample[] {
    const sum = (pick: (stats: PoolStats) => number): number =>
      gauges.pools.reduce((total, stats) => total + pick(stats), 0);
    const delayNs = this.#loopDelay.percentile(99);
    this.#loopDelay.reset();
    return [
      {
        ...gauge(
          'weft_listener_event_loop_delay_seconds',
          'How late the thread was, p99 since the last scrape',
          Math.max(0, delayNs / NS_PER_SECOND - LOOP_RESOLUTION_MS / 1_000),
        ),
        labels: [['thread', this.#thread]],
      },
      gauge('weft_listener_pods', 'Pods served', gauges.pods),
      gauge('weft_listener_cached_answers', 'Mesh lookups held in memory', gauges.cachedAnswers),
      gauge(
        'weft_hbone_tunnels_open',
        'Client tunnels open',
        sum((stats) => stats.tunnels),
      ),
      gauge(
        'weft_hbone_tunnels_idle',
        'Client tunnels without streams',
        sum((stats) => stats.idle),
      ),
      gauge(
        'weft_hbone_connecting',
        'Client handshakes in progress',
        sum((stats) => stats.connecting),
      ),
      counter('weft_hbone_handshakes_total', 'Inbound TLS handshakes', this.handshakesAccepted, [
        ['result', 'accepted'],
      ]),
      counter('weft_hbone_handshakes_total', 'Inbound TLS handshakes', this.handshakesRefused, [
        ['result', 'refused'],
      ]),
      counter('weft_policy_cuts_total', 'Live connections cut by a policy change', this.policyCuts),
      counter(
        'weft_connect_retries_total',
        'Connect attempts after the first',
        this.connectRetries,
      ),
      counter(
        'weft_listener_source_lost_total',
        'Connections made without the client address because the kernel did not allow it',
        this.transparencyLost,
      ),
      ...Object.entries(this.earlyDenials).map(([reason, value]) =>
        counter(
          'weft_listener_early_denials_total',
          'Connections refused before they were understood',
          value,
          [['reason', reason]],
        ),
      ),
    ];
  }
}

function gauge(name: string, help: string, value: number): MetricSample {
  return { name, kind: 'gauge', help, labels: [], value };
}

function counter(
  name: string,
  help: string,
  value: number,
  labels: MetricSample['labels'] = [],
): MetricSample {
  return { name, kind: 'counter', help, labels, value };
}
