/**
 * Shares the counters of a thread with another thread by memory. A message names a series once; the reader takes its value from
 * the memory, without a question to the thread.
 */

/** The name and the meaning of a value. */
export interface Series {
  /** Names of a histogram have the suffix `_bucket`, `_sum` or `_count`. */
  readonly name: string;
  readonly kind: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  /** Labels, in the order of output. */
  readonly labels: readonly (readonly [name: string, value: string])[];
}

/** Messages of the writer to the reader, in order. */
export type SeriesMessage =
  /** A further piece of memory; pieces are numbered in their order. */
  | { readonly kind: 'memory'; readonly memory: SharedArrayBuffer }
  /** A row: series in adjacent slots, from `at` on. */
  | { readonly kind: 'row'; readonly at: number; readonly series: readonly Series[] }
  /** The row ends; the writer uses its slots again after the reader has confirmed. */
  | { readonly kind: 'gone'; readonly at: number };

/** Values of one piece of memory, 8 KiB; the memory grows by such pieces. */
const SLOTS_PER_PIECE = 1_024;

/**
 * The series of one row. Only the owner writes it. An aligned 8-byte store is one instruction on every machine that Node runs
 * on, so a reader never sees half of a value.
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

  /** Sets all values to zero. */
  clear(): void {
    this.#piece.fill(0, this.#base, this.#base + this.size);
  }
}

/**
 * Writes the series of one thread. Its callers bound the number of rows. Returned rows are used again, so the memory grows with
 * the most rows at one time.
 */
export class SeriesWriter {
  readonly #tell: (message: SeriesMessage) => void;
  #piece: Float64Array<SharedArrayBuffer> | null = null;
  /** Slots used so far, with those skipped at the end of a piece. */
  #used = 0;
  /** Returned rows that the reader has not confirmed, by slot. */
  readonly #leaving = new Map<number, SeriesRow>();
  /** Rows to use again, by size. */
  readonly #free = new Map<number, SeriesRow[]>();
  readonly #published = new Map<string, SeriesRow>();

  /** `tell` sends messages to the {@link SeriesReader} in order. */
  constructor(tell: (message: SeriesMessage) => void) {
    this.#tell = tell;
  }

  /** Returns a row of zeros for these series, which no other row may have; at most as many as a piece has slots. */
  row(series: readonly Series[]): SeriesRow {
    const row = this.#free.get(series.length)?.pop() ?? this.#newRow(series.length);
    this.#tell({ kind: 'row', at: row.at, series });
    return row;
  }

  /** Returns a row: its series end. */
  release(row: SeriesRow): void {
    this.#leaving.set(row.at, row);
    this.#tell({ kind: 'gone', at: row.at });
  }

  /** The reader confirms that it does not read the row at this slot any more. */
  released(at: number): void {
    const row = this.#leaving.get(at);
    if (row === undefined) return;
    this.#leaving.delete(at);
    row.clear();
    const free = this.#free.get(row.size) ?? [];
    this.#free.set(row.size, free);
    free.push(row);
  }

  /** Sets values that are computed for each reading: few, and always of the same series. */
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

/** A row of the reader. */
export interface KnownRow {
  /** Equal for the same row of another thread. */
  readonly key: string;
  readonly series: readonly Series[];
}

/** Reads the series of another thread. */
export class SeriesReader {
  readonly #pieces: Float64Array[] = [];
  readonly #rows = new Map<number, KnownRow>();

  /** Takes a message. Returns the slot that {@link SeriesWriter.released} must get, or null. */
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

  /** Calls back for every row; `value` reads the value at an index of it. */
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
