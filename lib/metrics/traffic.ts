/**
 * Istio's TCP metrics of one thread (docs/spec/observability.md §2.2). Connections count in plain fields; label sets are
 * touched when a connection opens, closes, or the metrics are read.
 */
import { Roster } from '../collections/roster.ts';
import type { Listed } from '../collections/roster.ts';
import type { ResponseFlag } from '../errors/codes.ts';
import { LabelCache } from './label-cache.ts';
import { LabelSets } from './label-sets.ts';
import type { LabelSet, LabelSetOptions } from './label-sets.ts';
import { RESPONSE_FLAGS_INDEX } from './traffic-labels.ts';
import type { TrafficFacts, TrafficLabels } from './traffic-labels.ts';

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

const HELP = {
  istio_tcp_connections_opened_total: 'The total number of TCP connections opened',
  istio_tcp_connections_closed_total: 'The total number of TCP connections closed',
  istio_tcp_connections_failed_total: 'The total number of TCP connections that failed',
  istio_tcp_received_bytes_total:
    'The total number of bytes received from clients of TCP connections',
  istio_tcp_sent_bytes_total: 'The total number of bytes sent to clients of TCP connections',
  istio_tcp_sockets_open: 'The number of accepted sockets that are open',
  weft_traffic_label_overflow_total:
    'Connections counted without some of their labels because there were too many label sets',
} as const;

/** The counters of one thread. */
export class TrafficMetrics {
  readonly #sets: LabelSets;
  readonly #found = new LabelCache<LabelSet>();
  readonly #live = new Roster<OpenConnection>();
  readonly #sockets = { source: 0, destination: 0 };

  constructor(options: LabelSetOptions = {}) {
    this.#sets = new LabelSets(options);
  }

  /** Counts an opened connection whose bytes `read` tells at any time until it is closed. */
  open(facts: TrafficFacts, read: () => TrafficBytes): TrafficConnection {
    const set = this.#set(facts);
    set.opened += 1;
    set.live += 1;
    set.used = true;
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

  /** Everything, live connections included. What has not been used for long is told a last time. */
  samples(): TrafficSample[] {
    for (const connection of this.#live) connection.fold();
    const samples: TrafficSample[] = [];
    for (const set of this.#sets.values()) pushSet(samples, set);
    for (const reporter of ['source', 'destination'] as const) {
      push(samples, 'istio_tcp_sockets_open', [['reporter', reporter]], this.#sockets[reporter]);
    }
    push(samples, 'weft_traffic_label_overflow_total', [], this.#sets.overflow);
    this.#sets.sweep();
    return samples;
  }

  #set(facts: TrafficFacts): LabelSet {
    const found = this.#found.find(facts);
    if (found !== undefined && !found.gone) return found;
    const { set, whole } = this.#sets.get(facts);
    // Asked for again there may be room for its labels.
    if (whole) this.#found.keep(facts, set);
    return set;
  }
}

class OpenConnection implements TrafficConnection, Listed {
  place = -1;
  readonly #set: LabelSet;
  readonly #read: () => TrafficBytes;
  readonly #live: Roster<OpenConnection>;
  #sent = 0;
  #received = 0;
  #open = true;

  constructor(set: LabelSet, read: () => TrafficBytes, live: Roster<OpenConnection>) {
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
    this.#set.live -= 1;
    this.#set.used = true;
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
