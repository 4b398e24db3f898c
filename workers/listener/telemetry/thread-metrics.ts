import { performance } from 'node:perf_hooks';
import type { Suppression } from '../../../lib/log/access-gate.ts';
import { BucketCounts } from '../../../lib/metrics/bucket-counts.ts';
import { LoopTurns } from '../../../lib/metrics/loop-turns.ts';
import type { PoolStats } from '../../../lib/hbone/pool.ts';
import type { MetricSample } from '../protocol/control.ts';

/** Values that a scrape reads from the thread's other parts. */
export interface ThreadGauges {
  readonly pods: number;
  readonly cachedAnswers: number;
  readonly heldEndpoints: number;
  readonly pools: readonly PoolStats[];
  /** Access lines that were not written, by reason. */
  readonly suppressedLines: Readonly<Record<Suppression, number>>;
  /** Lines of any kind that found no room while the log's reader was too slow. */
  readonly droppedLines: number;
  /** Connections of this thread that the kernel carries. */
  readonly splices: number;
  /** The thread's share of each limited amount. */
  readonly budget: ThreadBudget;
}

/** See {@link ThreadGauges}. */
export interface ThreadBudget {
  readonly connections: number;
  readonly handshakes: number;
  /** Handshakes that wait for their turn. */
  readonly waitingHandshakes: number;
  /** In memory for connections. */
  readonly heldBytes: number;
  /** Pods that hold too much of that now, and how often one came to. */
  readonly pressure: { readonly now: number; readonly total: number };
  /** Connections of the pod that has most. */
  readonly busiestPod: number;
}

/** Why an accepted connection was refused before anything was known of it. */
export type EarlyDenialReason =
  | 'early-denial'
  | 'connection-limit'
  | 'peer-connection-limit'
  | 'node-connection-limit'
  | 'handshake-limit'
  | 'peer-handshake-limit'
  | 'node-handshake-limit'
  | 'byte-limit'
  | 'descriptor-limit'
  /** The kernel does not tell whose connection it is. */
  | 'socket-error';

/** The kind of TCP peer: another proxy, the pod's own application, or a server outside the mesh. */
export type ConnectTarget = 'tunnel' | 'application' | 'passthrough';

const MS_PER_SECOND = 1_000;

/** Counters of a listener thread beside the traffic itself; plain fields, read at scrape. */
export class ThreadMetrics {
  handshakesAccepted = 0;
  handshakesRefused = 0;
  policyCuts = 0;
  connectRetries = 0;
  transparencyLost = 0;
  /** Connections that went around a waypoint and were let in. */
  waypointsBypassed = 0;
  /** Connections that went without a tunnel, by the end that was ours, and those another thread left to the tunnel. */
  readonly sameNode = { source: 0, destination: 0, declined: 0 };
  readonly peerProbes = { alive: 0, dead: 0 };
  readonly earlyDenials: Record<EarlyDenialReason, number> = {
    'early-denial': 0,
    'connection-limit': 0,
    'peer-connection-limit': 0,
    'node-connection-limit': 0,
    'handshake-limit': 0,
    'peer-handshake-limit': 0,
    'node-handshake-limit': 0,
    'byte-limit': 0,
    'descriptor-limit': 0,
    'socket-error': 0,
  };

  /** Time of successful TCP connects. */
  readonly connects: Readonly<Record<ConnectTarget, BucketCounts>> = {
    tunnel: new BucketCounts(),
    application: new BucketCounts(),
    passthrough: new BucketCounts(),
  };
  /** Time of TLS handshakes whose peer showed a certificate of a trusted root. */
  readonly handshakes = { client: new BucketCounts(), server: new BucketCounts() } as const;
  /** Time from the acceptance of a connection to the first byte of the answer. */
  readonly firstByte = { source: new BucketCounts(), destination: new BucketCounts() } as const;

  readonly #thread: string;
  readonly #turns = new LoopTurns();

  constructor(thread: number) {
    this.#thread = String(thread);
  }

  #budget(budget: ThreadBudget): MetricSample[] {
    return [
      gauge(
        'weft_listener_connections',
        'Accepted sockets and streams of inbound tunnels',
        budget.connections,
      ),
      {
        ...gauge(
          'weft_listener_busiest_pod_connections',
          'Connections of the pod that has most on the thread',
          budget.busiestPod,
        ),
        labels: [['thread', this.#thread]],
      },
      gauge(
        'weft_listener_handshakes_pending',
        'Inbound handshakes in progress, those of silent clients included',
        budget.handshakes,
      ),
      gauge(
        'weft_listener_handshakes_waiting',
        'Handshakes that wait for their turn of the processor',
        budget.waitingHandshakes,
      ),
      gauge(
        'weft_listener_held_bytes',
        'Bytes held in memory for connections: without a reader yet, or waiting to be sent',
        budget.heldBytes,
      ),
      gauge(
        'weft_listener_pressed_pods',
        'Pods that take in less because they hold too much',
        budget.pressure.now,
      ),
      counter(
        'weft_listener_pressures_total',
        'How often a pod came to hold too much',
        budget.pressure.total,
      ),
    ];
  }

  #durations(): MetricSample[] {
    return [
      ...Object.entries(this.connects).flatMap(([to, counts]) =>
        counts.samples('weft_connect_duration_seconds', 'Time of TCP connects that succeeded', [
          ['to', to],
        ]),
      ),
      ...Object.entries(this.handshakes).flatMap(([side, counts]) =>
        counts.samples('weft_tls_handshake_duration_seconds', 'Time of TLS handshakes', [
          ['side', side],
        ]),
      ),
      ...Object.entries(this.firstByte).flatMap(([reporter, counts]) =>
        counts.samples(
          'weft_first_byte_duration_seconds',
          'Time from the acceptance of a connection to the first byte of the answer',
          [['reporter', reporter]],
        ),
      ),
    ];
  }

  #decisions(): MetricSample[] {
    return [
      counter('weft_policy_cuts_total', 'Live connections cut by a policy change', this.policyCuts),
      counter(
        'weft_waypoints_bypassed_total',
        'Connections let in that did not come by the waypoint their destination names',
        this.waypointsBypassed,
      ),
    ];
  }

  #probes(): MetricSample[] {
    return Object.entries(this.peerProbes).map(([result, value]) =>
      counter(
        'weft_peer_probes_total',
        'Tunnels probed because the workload of their peer was removed',
        value,
        [['result', result]],
      ),
    );
  }

  #withoutTunnel(splices: number): MetricSample[] {
    return [
      gauge('weft_splice_connections', 'Connections joined in the kernel', splices),
      ...(['source', 'destination'] as const).map((reporter) =>
        counter(
          'weft_same_node_connections_total',
          'Connections between two pods of this process that went without a tunnel',
          this.sameNode[reporter],
          [['reporter', reporter]],
        ),
      ),
      counter(
        'weft_same_node_declined_total',
        'Connections between two pods of this process that were left to the tunnel',
        this.sameNode.declined,
      ),
    ];
  }

  /** All values, with the gauges given; the event loop's delay is that since the last call. */
  samples(gauges: ThreadGauges): MetricSample[] {
    const sum = (pick: (stats: PoolStats) => number): number =>
      gauges.pools.reduce((total, stats) => total + pick(stats), 0);
    return [
      {
        ...gauge(
          'weft_listener_event_loop_delay_seconds',
          'How late the thread was at most since the last scrape',
          this.#turns.longest(),
        ),
        labels: [['thread', this.#thread]],
      },
      counter(
        'weft_listener_busy_seconds_total',
        'Time the thread was not waiting for events',
        performance.eventLoopUtilization().active / MS_PER_SECOND,
        [['thread', this.#thread]],
      ),
      gauge('weft_listener_pods', 'Pods served', gauges.pods),
      ...this.#budget(gauges.budget),
      ...stateGauges(gauges),
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
      ...this.#withoutTunnel(gauges.splices),
      ...this.#decisions(),
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
      ...this.#probes(),
      ...Object.entries(this.earlyDenials).map(([reason, value]) =>
        counter(
          'weft_listener_early_denials_total',
          'Connections refused before they were understood',
          value,
          [['reason', reason]],
        ),
      ),
      ...unwritten(gauges),
      ...this.#durations(),
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

function unwritten({ suppressedLines, droppedLines }: ThreadGauges): MetricSample[] {
  const suppressed = Object.entries(suppressedLines).map(([reason, value]) =>
    counter(
      'weft_access_lines_suppressed_total',
      'Access lines not written because of rules, sampling or a rate limit',
      value,
      [['reason', reason]],
    ),
  );
  const dropped = counter(
    'weft_log_lines_dropped_total',
    'Log lines not written because standard output took none for too long',
    droppedLines,
  );
  return [...suppressed, dropped];
}

function stateGauges({ cachedAnswers, heldEndpoints }: ThreadGauges): readonly MetricSample[] {
  return [
    gauge('weft_listener_cached_answers', 'Mesh lookups held in memory', cachedAnswers),
    gauge(
      'weft_listener_held_endpoints',
      'Endpoints of services held in memory, and services',
      heldEndpoints,
    ),
  ];
}
