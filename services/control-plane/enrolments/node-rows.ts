import type { TableChange, TableEntry, TableHandler } from '../../../lib/bus/contract.ts';
import { enrolmentSchema } from '../../../lib/state/enrolment.ts';
import type { Enrolment } from '../../../lib/state/enrolment.ts';

/** Copy of one node's enrolments, by pod uid. What is held stays until a new full copy is complete. */
export class NodeRows implements TableHandler {
  readonly #changed: () => void;
  readonly #malformed: (key: string, reason: string) => void;
  #rows = new Map<string, Enrolment>();
  #next: Map<string, Enrolment> | null = null;
  #synced = false;

  constructor(changed: () => void, malformed: (key: string, reason: string) => void) {
    this.#changed = changed;
    this.#malformed = malformed;
  }

  /** True once a full copy was read; before that nothing is known of the node. */
  get synced(): boolean {
    return this.#synced;
  }

  /** True when the node serves the pod. */
  serves(podUid: string): boolean {
    return this.#rows.get(podUid)?.state === 'enabled';
  }

  onReset(): void {
    this.#next = new Map();
  }

  onEntries(entries: readonly TableEntry[]): void {
    for (const { key, value } of entries) this.#take(this.#next ?? this.#rows, key, value);
  }

  onSynced(): void {
    this.#rows = this.#next ?? this.#rows;
    this.#next = null;
    this.#synced = true;
    this.#changed();
  }

  onChanges(changes: readonly TableChange[]): void {
    for (const { key, value } of changes) {
      if (value === null) this.#rows.delete(key);
      else this.#take(this.#rows, key, value);
    }
    this.#changed();
  }

  #take(rows: Map<string, Enrolment>, key: string, value: Uint8Array): void {
    const parsed = parseEnrolment(value);
    if (typeof parsed === 'string') {
      // What it said before stays true as far as anyone knows.
      this.#malformed(key, parsed);
      const before = this.#rows.get(key);
      if (before !== undefined) rows.set(key, before);
    } else {
      rows.set(key, parsed);
    }
  }
}

/** The row, or why it is none. */
function parseEnrolment(value: Uint8Array): Enrolment | string {
  let json: unknown;
  try {
    json = JSON.parse(Buffer.from(value).toString('utf8'));
  } catch {
    // The caller reports it with the row's key.
    return 'it is not JSON';
  }
  const parsed = enrolmentSchema.safeParse(json);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  return `${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'invalid'}`;
}
