import type { Clock } from '../clock/clock.ts';
import { MAX_CACHED_ANSWER_BYTES, MAX_CACHE_BYTES } from './limits.ts';
import type { DnsProtocol } from './response.ts';
import { lifetimeOf } from './upstream-answer.ts';
import type { Lifetime } from './upstream-answer.ts';
import { OPCODE_QUERY, opcodeOf } from './wire.ts';

interface Entry {
  readonly answer: Buffer;
  readonly lifetime: Lifetime;
  readonly storedMs: number;
  readonly bytes: number;
}

/** Rough memory cost of an entry besides its bytes. */
const ENTRY_OVERHEAD_BYTES = 200;

/**
 * Remembers answers of upstream resolvers until the first of their records expires. A question finds an answer only if its bytes and
 * its protocol are the same. The cache is bounded in bytes and drops the least recently used answer first.
 */
export class AnswerCache {
  readonly #clock: Clock;
  readonly #maxBytes: number;
  readonly #entries = new Map<string, Entry>();
  #bytes = 0;

  constructor(clock: Clock, maxBytes = MAX_CACHE_BYTES) {
    this.#clock = clock;
    this.#maxBytes = maxBytes;
  }

  /** Answers held. */
  get size(): number {
    return this.#entries.size;
  }

  /** A copy of the answer with the lifetimes that remain. It carries the id of the first question. */
  get(question: Buffer, protocol: DnsProtocol): Buffer | null {
    const key = keyOf(question, protocol);
    const entry = this.#entries.get(key);
    if (entry === undefined) return null;
    const ageSeconds = Math.floor((this.#clock.monotonic() - entry.storedMs) / 1_000);
    this.#entries.delete(key);
    if (ageSeconds >= entry.lifetime.seconds) {
      this.#bytes -= entry.bytes;
      return null;
    }
    // Moves the entry to the young end; eviction takes from the old end.
    this.#entries.set(key, entry);
    return aged(entry, ageSeconds);
  }

  /** Remembers an answer that states a lifetime. */
  put(question: Buffer, protocol: DnsProtocol, answer: Buffer): void {
    if (opcodeOf(question) !== OPCODE_QUERY || answer.length > MAX_CACHED_ANSWER_BYTES) return;
    const lifetime = lifetimeOf(answer);
    if (lifetime === null) return;
    const key = keyOf(question, protocol);
    const bytes = answer.length + key.length + ENTRY_OVERHEAD_BYTES;
    this.#bytes += bytes - (this.#entries.get(key)?.bytes ?? 0);
    this.#entries.delete(key);
    const storedMs = this.#clock.monotonic();
    this.#entries.set(key, { answer: Buffer.from(answer), lifetime, storedMs, bytes });
    for (const [oldKey, old] of this.#entries) {
      if (this.#bytes <= this.#maxBytes) break;
      this.#entries.delete(oldKey);
      this.#bytes -= old.bytes;
    }
  }
}

/** The key leaves out only the id: flags, EDNS and the case of the name are part of the question. */
function keyOf(question: Buffer, protocol: DnsProtocol): string {
  return `${protocol}:${question.toString('latin1', 2)}`;
}

function aged({ answer, lifetime }: Entry, ageSeconds: number): Buffer {
  const copy = Buffer.from(answer);
  for (const at of lifetime.ttlsAt) copy.writeUInt32BE(answer.readUInt32BE(at) - ageSeconds, at);
  return copy;
}
