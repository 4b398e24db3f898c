/**
 * Counters of a thread in memory that another thread reads: what a series is called is told once, by a message; its value
 * is read from the memory, without asking the thread.
 */

/** What a value is called and means. */
export interface Series {
  /** Of a histogram with its suffix: `_bucket`, `_sum` or `_count`. */
  readonly name: string;
  readonly kind: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  /** In the order they are to be emitted. */
  readonly labels: readonly (readonly [name: string, value: string])[];
}

/** What the writer tells the reader, in order. */
export type SeriesMessage =
  /** More memory; pieces are numbered in the order they come. */
  | { readonly kind: 'memory'; readonly memory: SharedArrayBuffer }
  /** Series that stand beside each other from the slot `at` on. */
  | { readonly kind: 'row'; readonly at: number; readonly series: readonly Series[] }
  /** The row is read no more; its slots may be used again once the reader has said so. */
  | { readonly kind: 'gone'; readonly at: number };

/** Values of one piece of memory, 8 KiB; what is in use grows by such pieces. */
const SLOTS_PER_PIECE = 1_024;

/**
 * Series of one row. The owner alone writes it. An aligned 8-byte store is one instruction on every machine that Node
 * runs on, so that a reader never sees half of a value.
 */
export class SeriesRow {
  readonly at: number;
  readonly size: number;
  readonly #piece: Float64Array<SharedArrayBuffer>;
  readonly #base: number;

  constructor(piece: Float64Array<SharedArrayBuffer>, at: number, size: number) {
    this.#piece = piece;
    this.at = at;
    this.#base = at % SLOTS_PER_PIECE;
    this.size = size;
  }

  /** Adds to the value at `index` of the row. */
  add(index: number, by = 1): void {
    const slot = this.#base + index;
    this.#piece[slot] = (this.#piece[slot] ?? 0) + by;
  }

  /** Replaces the value at `index` of the row. */
  set(index: number, value: number): void {
    this.#piece[this.#base + index] = value;
  }

  /** Makes all values zero. */
  clear(): void {
    this.#piece.fill(0, this.#base, this.#base + this.size);
  }
}

/**
 * The series of one thread. Its callers bound how many rows there are; a row that was given back is used again, so that
 * the memory is as large as the most that there were at once.
 */
export class SeriesWriter {
  readonly #tell: (message: SeriesMessage) => void;
  #piece: Float64Array<SharedArrayBuffer> | null = null;
  /** Slots handed out so far, those skipped at the end of a piece included. */
  #used = 0;
  /** Rows that wait for the reader's word, by their slot. */
  readonly #leaving = new Map<number, SeriesRow>();
  /** Rows to use again, by their size. */
  readonly #free = new Map<number, SeriesRow[]>();
  readonly #published = new Map<string, SeriesRow>();

  /** `tell` brings messages to the {@link SeriesReader} in their order. */
  constructor(tell: (message: SeriesMessage) => void) {
    this.#tell = tell;
  }

  /** A row of zeros for these series, which nobody else may have; at most as many as a piece has slots. */
  row(series: readonly Series[]): SeriesRow {
    const row = this.#free.get(series.length)?.pop() ?? this.#newRow(series.length);
    this.#tell({ kind: 'row', at: row.at, series });
    return row;
  }

  /** Gives a row back: its series are told no more. */
  release(row: SeriesRow): void {
    this.#leaving.set(row.at, row);
    this.#tell({ kind: 'gone', at: row.at });
  }

  /** The reader reads the row at this slot no more. */
  released(at: number): void {
    const row = this.#leaving.get(at);
    if (row === undefined) return;
    this.#leaving.delete(at);
    row.clear();
    const free = this.#free.get(row.size) ?? [];
    this.#free.set(row.size, free);
    free.push(row);
  }

  /** Sets values that are worked out anew for each reading: few, and always of the same series. */
  publish(samples: Iterable<Series & { readonly value: number }>): void {
    for (const { value, ...series } of samples) {
      const key = seriesKey(series);
      const row = this.#published.get(key) ?? this.row([series]);
      this.#published.set(key, row);
      row.set(0, value);
    }
  }

  #newRow(size: number): SeriesRow {
    const left = SLOTS_PER_PIECE - (this.#used % SLOTS_PER_PIECE);
    let piece = this.#piece;
    if (piece === null || left === SLOTS_PER_PIECE || left < size) {
      const bytes = SLOTS_PER_PIECE * Float64Array.BYTES_PER_ELEMENT;
      piece = new Float64Array(new SharedArrayBuffer(bytes));
      this.#piece = piece;
      this.#used = Math.ceil(this.#used / SLOTS_PER_PIECE) * SLOTS_PER_PIECE;
      this.#tell({ kind: 'memory', memory: piece.buffer });
    }
    const row = new SeriesRow(piece, this.#used, size);
    this.#used += size;
    return row;
  }
}

/** A row as its reader knows it. */
export interface KnownRow {
  /** The same for the same row of another thread. */
  readonly key: string;
  readonly series: readonly Series[];
}

/** The series of one thread, as another thread reads them. */
export class SeriesReader {
  readonly #pieces: Float64Array[] = [];
  readonly #rows = new Map<number, KnownRow>();

  /** Takes a message; what is to be told the writer, by {@link SeriesWriter.released}, or null. */
  take(message: SeriesMessage): number | null {
    switch (message.kind) {
      case 'memory':
        this.#pieces.push(new Float64Array(message.memory));
        return null;
      case 'row': {
        const { at, series } = message;
        const [first] = series;
        if (first !== undefined) this.#rows.set(at, { key: seriesKey(first), series });
        return null;
      }
      case 'gone':
        this.#rows.delete(message.at);
        return message.at;
    }
  }

  /** Every row; `value` reads the one at an index of it. */
  forEach(visit: (row: KnownRow, value: (index: number) => number) => void): void {
    for (const [at, row] of this.#rows) {
      const piece = this.#pieces[Math.floor(at / SLOTS_PER_PIECE)];
      const base = at % SLOTS_PER_PIECE;
      visit(row, (index) => piece?.[base + index] ?? 0);
    }
  }
}

function seriesKey({ name, labels }: Series): string {
  return JSON.stringify([name, labels]);
}
