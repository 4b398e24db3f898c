import { Writable } from 'node:stream';
import { systemClock } from '../../lib/clock/clock.ts';
import type { BusConfig } from '../../lib/bus/config.ts';
import type { Scope, TableChange, TableEntry, TableHandler } from '../../lib/bus/contract.ts';
import type { Lease } from '../../lib/bus/lease.ts';
import type { Bus } from '../../lib/bus/redis-bus.ts';
import { connectBus } from '../../lib/bus/redis-bus.ts';
import { createLogger } from '../../lib/log/logger.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { MetricRegistry } from '../../lib/metrics/registry.ts';
import type { TeardownOwner } from './actor-context.ts';
import { until } from './until.ts';

/** A logger whose lines a test can look at. */
export function capturedLog(): { log: Logger; lines: Record<string, unknown>[] } {
  const lines: Record<string, unknown>[] = [];
  const destination = new Writable({
    write(chunk: Buffer, _encoding, done) {
      lines.push(JSON.parse(chunk.toString()) as Record<string, unknown>);
      done();
    },
  });
  return { log: createLogger({ actor: 'test', level: 'debug' }, destination), lines };
}

/** A bus with its metrics and log, closed at the end of the test. */
export interface TestBus {
  readonly bus: Bus;
  readonly metrics: MetricRegistry;
  readonly lines: Record<string, unknown>[];
}

/** Connects a bus for a test. */
export function openBus(t: TeardownOwner, config: BusConfig, name = 'test'): TestBus {
  const metrics = new MetricRegistry();
  const { log, lines } = capturedLog();
  const bus = connectBus(config, { log, clock: systemClock, metrics, name });
  t.teardown(() => bus.close());
  return { bus, metrics, lines };
}

/** Outlasts the stalls of a busy machine: an actor that loses its lease writes everything again, and a test writes once. */
const LASTING = { ttlMs: 120_000, renewMs: 2_500 };

/** Takes a lease, and resolves when it is held. */
export async function heldLease(bus: Bus, name: string, scope: Scope): Promise<Lease> {
  const lease = bus.lease(name, scope, LASTING);
  await until(() => lease.held, { what: `the lease ${name}` });
  return lease;
}

/** A table handler that keeps the rows as text, as a real consumer would. */
export class TableCopy implements TableHandler {
  /** The rows of the last complete copy, with the changes since. */
  rows = new Map<string, string>();
  readonly epochs: string[] = [];
  changes = 0;
  copies = 0;
  #next: Map<string, string> | null = null;

  onReset(epoch: string): void {
    this.epochs.push(epoch);
    this.#next = new Map();
  }

  onEntries(entries: readonly TableEntry[]): void {
    for (const { key, value } of entries) this.#next?.set(key, Buffer.from(value).toString());
  }

  onSynced(): void {
    if (this.#next !== null) this.rows = this.#next;
    this.#next = null;
    this.copies += 1;
  }

  onChanges(changes: readonly TableChange[]): void {
    for (const { key, value } of changes) {
      this.changes += 1;
      if (value === null) this.rows.delete(key);
      else this.rows.set(key, Buffer.from(value).toString());
    }
  }
}

/** Bytes of a text. */
export function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}
