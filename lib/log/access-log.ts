/** One line per connection (docs/spec/observability.md §3.1); the field order is part of the format. */
import { AccessGate } from './access-gate.ts';
import type { FieldSink } from './line-text.ts';
import { infoLines } from './logger.ts';
import type { InfoLines, Logger } from './logger.ts';

/** One end of a connection. */
export interface AccessParty {
  /** `ip:port`. */
  readonly address: string;
  readonly workload: string | null;
  readonly namespace: string | null;
  /** Only when TLS proved it. */
  readonly identity: string | null;
  readonly cluster: string | null;
}

/** What is known when a connection opens. */
export interface AccessFacts {
  readonly source: AccessParty;
  readonly destination: AccessParty;
  /** The `:authority` of HBONE, null without. */
  readonly hboneAddress: string | null;
  readonly serviceHostname: string | null;
  readonly direction: 'inbound' | 'outbound';
  /** Shared by the lines of both ends of a tunnel. */
  readonly traceId: string | null;
  /** Where it went another way than its kind does: `same-node`. */
  readonly path?: string | null;
}

/** What is known when it ends. Bytes from the point of view of the pod that owns the log. */
export interface AccessEnd {
  readonly bytesSent: number;
  readonly bytesReceived: number;
  readonly durationMs: number;
  readonly error: string | null;
  /** The policy that decided, where one did. */
  readonly policy?: string | null;
  /** Its rule, from 0. */
  readonly rule?: number | null;
}

/** A connection that ended before anything was known of it. */
export interface EarlyDenial {
  readonly source: string;
  readonly destination: string;
  readonly direction: 'inbound' | 'outbound';
  readonly error: string;
}

/** The fields of a line, in order. */
export type AccessFields = Record<string, string | number>;

/** What access lines are of. */
export const TARGET = 'access';

/** What the line of a connection says. */
export const COMPLETE = 'connection complete';
/** What that of an early denial says. */
export const FAILED = 'connection failed';

/** Writes access lines. */
export class AccessLog {
  readonly #log: Logger;
  readonly #successes: InfoLines;
  readonly #gate: AccessGate;
  readonly #elsewhere: boolean;

  /**
   * `gate` decides about the lines of connections that did not fail. `elsewhere`: lines are wanted by someone besides the
   * log, so that the gate is asked whatever the log's level.
   */
  constructor(log: Logger, gate: AccessGate = new AccessGate(), elsewhere = false) {
    this.#log = log;
    this.#successes = infoLines(log, TARGET, COMPLETE);
    this.#gate = gate;
    this.#elsewhere = elsewhere;
  }

  /** Whether {@link opened} writes anything: spares who calls it the work. */
  get writesOpenings(): boolean {
    return this.#log.isLevelEnabled('debug');
  }

  /** Debug level. */
  opened(facts: AccessFacts): void {
    if (this.writesOpenings) this.#log.debug(accessFields(facts, null), 'connection opened');
  }

  /**
   * The one line of a connection: error when it failed, and then written at once; else info where the rules of its pod's
   * namespace let it through, and written soon, together with others. False where the rules did not.
   */
  complete(facts: AccessFacts, end: AccessEnd, namespace = ''): boolean {
    if (end.error !== null) {
      this.#log.error(accessFields(facts, end), COMPLETE);
      return true;
    }
    if (!this.#elsewhere && !this.#log.isLevelEnabled('info')) return false;
    if (!this.#gate.admits(namespace, facts.traceId)) return false;
    const line = this.#successes.begin();
    if (line === null) return true;
    tell(line, facts, end);
    this.#successes.gather(line);
    return true;
  }
}

/** What is written of a connection; without its `end` as when it opens. */
export function accessFields(facts: AccessFacts, end: AccessEnd | null): AccessFields {
  const fields: AccessFields = { scope: TARGET };
  const put = (name: string, value: string | number): void => {
    fields[name] = value;
  };
  tell({ text: put, number: put }, facts, end);
  return fields;
}

/** The fields and their order; nothing else knows them. */
function tell(to: FieldSink, facts: AccessFacts, end: AccessEnd | null): void {
  const { source, destination } = facts;
  to.text('src.addr', source.address);
  put(to, 'src.workload', source.workload);
  put(to, 'src.namespace', source.namespace);
  put(to, 'src.identity', source.identity);
  put(to, 'src.cluster', source.cluster);
  to.text('dst.addr', destination.address);
  put(to, 'dst.hbone_addr', facts.hboneAddress);
  put(to, 'dst.service', facts.serviceHostname);
  put(to, 'dst.workload', destination.workload);
  put(to, 'dst.namespace', destination.namespace);
  put(to, 'dst.identity', destination.identity);
  put(to, 'dst.cluster', destination.cluster);
  to.text('direction', facts.direction);
  put(to, 'trace_id', facts.traceId);
  put(to, 'path', facts.path ?? null);
  if (end === null) return;
  to.number('bytes_sent', end.bytesSent);
  to.number('bytes_recv', end.bytesReceived);
  to.text('duration', `${Math.round(end.durationMs)}ms`);
  if (end.error === null) return;
  to.text('error', end.error);
  put(to, 'policy', end.policy ?? null);
  if (end.rule !== undefined && end.rule !== null) to.number('rule', end.rule);
}

function put(to: FieldSink, name: string, value: string | null): void {
  if (value !== null && value !== '') to.text(name, value);
}
