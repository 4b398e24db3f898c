/**
 * Counts Istio's TCP metrics of one thread (docs/spec/observability.md §2.2). Connections count in plain fields. A label set
 * changes only when a connection opens or closes, or when the metrics are read.
 */
import { Roster } from '../collections/roster.ts';
import type { Listed } from '../collections/roster.ts';
import type { ResponseFlag } from '../errors/codes.ts';
import { LabelCache } from './label-cache.ts';
import { LabelSets } from './label-sets.ts';
import type { LabelSet, LabelSetOptions } from './label-sets.ts';
import type { Series, SeriesRow, SeriesWriter } from './series-memory.ts';
import { RESPONSE_FLAGS_INDEX } from './traffic-labels.ts';
import type { TrafficFacts, TrafficLabels } from './traffic-labels.ts';

/** Bytes of a connection so far. */
export interface TrafficBytes {
  /** Bytes from the upstream back to the client. */
  readonly sent: number;
  /** Bytes from the client towards the upstream. */
  readonly received: number;
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

/** Places of values in a label set's row. */
const OPENED = 0;
const RECEIVED = 1;
const SENT = 2;
const OPEN_NAMES = [
  'istio_tcp_connections_opened_total',
  'istio_tcp_received_bytes_total',
  'istio_tcp_sent_bytes_total',
] as const;
const CLOSED_NAMES = [
  'istio_tcp_connections_closed_total',
  'istio_tcp_connections_failed_total',
] as const;

/** Live connections whose bytes are updated in one turn of the event loop: some 0.2 ms. */
export const CONNECTIONS_FOLDED_PER_TURN = 256;

/** The counters of one thread. */
export class TrafficMetrics {
  readonly #series: SeriesWriter;
  readonly #sets: LabelSets;
  readonly #found = new LabelCache<LabelSet>();
  readonly #live = new Roster<OpenConnection>();
  readonly #sockets = { source: 0, destination: 0 };

  constructor(series: SeriesWriter, options: LabelSetOptions = {}) {
    this.#series = series;
    this.#sets = new LabelSets(
      {
        open: (labels) => series.row(seriesOf(OPEN_NAMES, labels)),
        giveUp: ({ row, closed }) => {
          for (const given of [row, ...closed.values()]) series.release(given);
        },
      },
      options,
    );
  }

  /** Counts an opened connection. `read` returns its bytes at any time until it is closed. */
  open(facts: TrafficFacts, read: () => TrafficBytes): TrafficConnection {
    const set = this.#set(facts);
    set.row.add(OPENED);
    set.live += 1;
    set.used = true;
    const connection = new OpenConnection(set, read, this);
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

  /** Updates the bytes of live connections and the few values of the thread; yields between turns. */
  *refresh(): Generator<void, void> {
    let folded = 0;
    for (let place = this.#live.size - 1; place >= 0; place -= 1) {
      this.#live.at(place)?.fold();
      folded += 1;
      if (folded % CONNECTIONS_FOLDED_PER_TURN === 0) yield;
    }
    const open = (['source', 'destination'] as const).map((reporter) => ({
      name: 'istio_tcp_sockets_open',
      kind: 'gauge' as const,
      help: HELP.istio_tcp_sockets_open,
      labels: [['reporter', reporter]] as const,
      value: this.#sockets[reporter],
    }));
    const [overflow] = seriesOf(['weft_traffic_label_overflow_total'], []);
    this.#series.publish(open);
    if (overflow !== undefined) this.#series.publish([{ ...overflow, value: this.#sets.overflow }]);
  }

  /** Drops label sets that were not used for long. Call it after all values were published. */
  sweep(): void {
    this.#sets.sweep();
  }

  /** Counts the end of a connection. */
  ended(connection: OpenConnection, set: LabelSet, flag: ResponseFlag): void {
    set.live -= 1;
    set.used = true;
    const row = set.closed.get(flag) ?? this.#closedRow(set, flag);
    row.add(0);
    if (flag !== '-') row.add(1);
    this.#live.delete(connection);
  }

  #closedRow(set: LabelSet, flag: ResponseFlag): SeriesRow {
    const labels = set.labels.with(RESPONSE_FLAGS_INDEX, ['response_flags', flag]);
    const names = flag === '-' ? CLOSED_NAMES.slice(0, 1) : CLOSED_NAMES;
    const row = this.#series.row(seriesOf(names, labels));
    set.closed.set(flag, row);
    return row;
  }

  #set(facts: TrafficFacts): LabelSet {
    const found = this.#found.find(facts);
    if (found !== undefined && !found.gone) return found;
    const { set, whole } = this.#sets.get(facts);
    // There may be room for its labels now.
    if (whole) this.#found.keep(facts, set);
    return set;
  }
}

class OpenConnection implements TrafficConnection, Listed {
  place = -1;
  readonly #set: LabelSet;
  readonly #read: () => TrafficBytes;
  readonly #metrics: TrafficMetrics;
  #sent = 0;
  #received = 0;
  #open = true;

  constructor(set: LabelSet, read: () => TrafficBytes, metrics: TrafficMetrics) {
    this.#set = set;
    this.#read = read;
    this.#metrics = metrics;
  }

  fold(): void {
    const { sent, received } = this.#read();
    this.#set.row.add(SENT, sent - this.#sent);
    this.#set.row.add(RECEIVED, received - this.#received);
    this.#sent = sent;
    this.#received = received;
  }

  close(flag: ResponseFlag): void {
    if (!this.#open) return;
    this.#open = false;
    this.fold();
    this.#metrics.ended(this, this.#set, flag);
  }
}

function seriesOf(names: readonly (keyof typeof HELP)[], labels: TrafficLabels): Series[] {
  return names.map((name) => ({ name, kind: 'counter', help: HELP[name], labels }));
}
