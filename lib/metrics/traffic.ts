/**
 * Istio's TCP metrics of one thread (spec/observability.md §2.2). Connections count in plain fields; label sets are
 * touched when a connection opens, closes, or the metrics are read.
 */
import type { ResponseFlag } from '../errors/codes.ts';
import { LabelCache } from './label-cache.ts';
import { RESPONSE_FLAGS_INDEX, trafficLabels } from './traffic-labels.ts';
import type { TrafficFacts, TrafficLabels } from './traffic-labels.ts';

/**
 * Label sets kept; each costs about 1 kB here and as much in a scrape. What comes after is counted under one set
 * of unknown values, so that totals stay right.
 */
export const MAX_LABEL_SETS = 10_000;

/** Bytes of a connection so far. */
export interface TrafficBytes {
  /** From the upstream back to the client. */
  readonly sent: number;
  /** From the client towards the upstream. */
  readonly received: number;
}

/** A value to report. */
export interface TrafficSample {
  readonly name: string;
  readonly kind: 'counter' | 'gauge';
  readonly help: string;
  readonly labels: TrafficLabels;
  readonly value: number;
}

/** An opened connection. */
export interface TrafficConnection {
  /** Counts the end, once; later calls do nothing. */
  close(flag: ResponseFlag): void;
}

interface LabelSet {
  readonly labels: TrafficLabels;
  opened: number;
  sent: number;
  received: number;
  readonly closed: Map<ResponseFlag, number>;
}

const HELP = {
  istio_tcp_connections_opened_total: 'The total number of TCP connections opened',
  istio_tcp_connections_closed_total: 'The total number of TCP connections closed',
  istio_tcp_connections_failed_total: 'The total number of TCP connections that failed',
  istio_tcp_received_bytes_total:
    'The total number of bytes received from clients of TCP connections',
  istio_tcp_sent_bytes_total: 'The total number of bytes sent to clients of TCP connections',
  istio_tcp_sockets_open: 'The number of accepted sockets that are open',
  weft_traffic_label_overflow_total:
    'Connections counted without their labels because there were too many label sets',
} as const;

/** The counters of one thread. */
export class TrafficMetrics {
  readonly #maxLabelSets: number;
  readonly #sets = new Map<string, LabelSet>();
  readonly #found = new LabelCache<LabelSet>();
  readonly #live = new Set<OpenConnection>();
  readonly #sockets = { source: 0, destination: 0 };
  #overflow = 0;

  constructor(options: { readonly maxLabelSets?: number } = {}) {
    this.#maxLabelSets = options.maxLabelSets ?? MAX_LABEL_SETS;
  }

  /** Counts an opened connection whose bytes `read` tells at any time until it is closed. */
  open(facts: TrafficFacts, read: () => TrafficBytes): TrafficConnection {
    const set = this.#set(facts);
    set.opened += 1;
    const connection = new OpenConnection(set, read, this.#live);
    this.#live.add(connection);
    return connection;
  }

  /** Counts an accepted socket; call the result when it ends. */
  socketOpened(reporter: 'source' | 'destination'): () => void {
    this.#sockets[reporter] += 1;
    let open = true;
    return () => {
      if (open) this.#sockets[reporter] -= 1;
      open = false;
    };
  }

  /** Everything, live connections included. */
  samples(): TrafficSample[] {
    for (const connection of this.#live) connection.fold();
    const samples: TrafficSample[] = [];
    for (const set of this.#sets.values()) pushSet(samples, set);
    for (const reporter of ['source', 'destination'] as const) {
      push(samples, 'istio_tcp_sockets_open', [['reporter', reporter]], this.#sockets[reporter]);
    }
    push(samples, 'weft_traffic_label_overflow_total', [], this.#overflow);
    return samples;
  }

  #set(facts: TrafficFacts): LabelSet {
    const found = this.#found.find(facts);
    if (found !== undefined) return found;
    const labels = trafficLabels(facts);
    const key = keyOf(labels);
    const known = this.#sets.get(key);
    if (known === undefined && this.#sets.size >= this.#maxLabelSets) return this.#bare(facts);
    const set = known ?? this.#addSet(key, labels);
    this.#found.keep(facts, set);
    return set;
  }

  /** Each connection without labels of its own is counted as such. */
  #bare(facts: TrafficFacts): LabelSet {
    this.#overflow += 1;
    const bare = trafficLabels({
      reporter: facts.reporter,
      sourceWorkload: null,
      sourceBaggage: null,
      sourceIdentity: null,
      destinationWorkload: null,
      destinationBaggage: null,
      destinationIdentity: null,
      destinationService: null,
      mutualTls: facts.mutualTls,
    });
    const bareKey = keyOf(bare);
    return this.#sets.get(bareKey) ?? this.#addSet(bareKey, bare);
  }

  #addSet(key: string, labels: TrafficLabels): LabelSet {
    const set = { labels, opened: 0, sent: 0, received: 0, closed: new Map() };
    this.#sets.set(key, set);
    return set;
  }
}

class OpenConnection implements TrafficConnection {
  readonly #set: LabelSet;
  readonly #read: () => TrafficBytes;
  readonly #live: Set<OpenConnection>;
  #sent = 0;
  #received = 0;
  #open = true;

  constructor(set: LabelSet, read: () => TrafficBytes, live: Set<OpenConnection>) {
    this.#set = set;
    this.#read = read;
    this.#live = live;
  }

  fold(): void {
    const { sent, received } = this.#read();
    this.#set.sent += sent - this.#sent;
    this.#set.received += received - this.#received;
    this.#sent = sent;
    this.#received = received;
  }

  close(flag: ResponseFlag): void {
    if (!this.#open) return;
    this.#open = false;
    this.fold();
    this.#set.closed.set(flag, (this.#set.closed.get(flag) ?? 0) + 1);
    this.#live.delete(this);
  }
}

function pushSet(samples: TrafficSample[], set: LabelSet): void {
  push(samples, 'istio_tcp_connections_opened_total', set.labels, set.opened);
  push(samples, 'istio_tcp_received_bytes_total', set.labels, set.received);
  push(samples, 'istio_tcp_sent_bytes_total', set.labels, set.sent);
  for (const [flag, count] of set.closed) {
    const labels = set.labels.with(RESPONSE_FLAGS_INDEX, ['response_flags', flag]);
    push(samples, 'istio_tcp_connections_closed_total', labels, count);
    if (flag !== '-') push(samples, 'istio_tcp_connections_failed_total', labels, count);
  }
}

function push(
  samples: TrafficSample[],
  name: keyof typeof HELP,
  labels: TrafficLabels,
  value: number,
): void {
  const kind = name === 'istio_tcp_sockets_open' ? 'gauge' : 'counter';
  samples.push({ name, kind, help: HELP[name], labels, value });
}

function keyOf(labels: TrafficLabels): string {
  return labels.map(([, value]) => value).join('\n');
}
