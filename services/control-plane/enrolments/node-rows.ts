import { TableMirror } from '../../../lib/bus/table-mirror.ts';
import type { TableSink } from '../../../lib/bus/table-mirror.ts';
import { enrolmentSchema } from '../../../lib/state/enrolment.ts';
import type { Enrolment } from '../../../lib/state/enrolment.ts';

/** The enrolments of one node, by pod uid. */
export class NodeRows implements TableSink {
  /** Follows the node's `enrolments` table. */
  readonly mirror = new TableMirror(this);
  /** Called after each step of the table. */
  readonly applied: () => void;
  readonly #malformed: (key: string, reason: string) => void;
  readonly #rows = new Map<string, Enrolment>();

  constructor(applied: () => void, malformed: (key: string, reason: string) => void) {
    this.applied = applied;
    this.#malformed = malformed;
  }

  /** True once a full copy was read; before that the node's enrolments are unknown. */
  get synced(): boolean {
    return this.mirror.synced;
  }

  /** True when the node serves the pod. */
  serves(podUid: string): boolean {
    return this.#rows.get(podUid)?.state === 'enabled';
  }

  keys(): Iterable<string> {
    return this.#rows.keys();
  }

  /** A row that cannot be read is reported; the row before it stays. */
  apply(key: string, value: Uint8Array | null): void {
    if (value === null) {
      this.#rows.delete(key);
      return;
    }
    const parsed = parseEnrolment(value);
    if (typeof parsed === 'string') this.#malformed(key, parsed);
    else this.#rows.set(key, parsed);
  }
}

/** The row, or why it cannot be read. */
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
