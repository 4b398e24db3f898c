/** Writes one line per connection (docs/spec/observability.md §3.1). The field order is part of the format. */
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
  /** Present only when TLS proved it. */
  readonly identity: string | null;
  readonly cluster: string | null;
}

/** The facts that are known when a connection opens. */
export interface AccessFacts {
  readonly source: AccessParty;
  readonly destination: AccessParty;
  /** The `:authority` of HBONE; null without HBONE. */
  readonly hboneAddress: string | null;
  readonly serviceHostname: string | null;
  readonly direction: 'inbound' | 'outbound';
  /** The lines of both ends of a tunnel share it. */
  readonly traceId: string | null;
  /** Present where the connection took a special way: `same-node`. */
  readonly path?: string | null;
}

/** The facts that are known when a connection ends. Bytes are from the point of view of the pod that owns the log. */
export interface AccessEnd {
  readonly bytesSent: number;
  readonly bytesReceived: number;
  readonly durationMs: number;
  readonly error: string | null;
  /** The policy that decided, if any. */
  readonly policy?: string | null;
  /** Its rule, from 0. */
  readonly rule?: number | null;
}

/** A connection that was refused before its destination was known. */
export interface EarlyDenial {
  readonly source: string;
  readonly destination: string;
  readonly direction: 'inbound' | 'outbound';
  readonly error: string;
}

/** The fields of a line, in order. */
export type AccessFields = Record<string, string | number>;

/** The target of access lines. */
export const TARGET = 'access';

/** The message of the line of a connection. */
export const COMPLETE = 'connection complete';
/** The message of the line of an early denial. */
export const FAILED = 'connection failed';

/** Writes access lines. */
export class AccessLog {
  readonly #log: Logger;
  readonly #successes: InfoLines;
  readonly #gate: AccessGate;
  readonly #elsewhere: boolean;

  /**
   * `gate` decides about the lines of connections that did not fail. With `elsewhere`, an export wants lines too, and the gate
   * is asked at every log level.
   */
  constructor(log: Logger, gate: AccessGate = new AccessGate(), elsewhere = false) {
    this.#log = log;
    this.#successes = infoLines(log, TARGET, COMPLETE);
    this.#gate = gate;
    this.#elsewhere = elsewhere;
  }

  /** Whether {@link opened} writes anything; spares the caller the work when not. */
  get writesOpenings(): boolean {
    return this.#log.isLevelEnabled('debug');
  }

  /** Writes the line of an opened connection, at level debug. */
  opened(facts: AccessFacts): void {
    if (this.writesOpenings) this.#log.debug(accessFields(facts, null), 'connection opened');
  }

  /**
   * Writes the line of an ended connection. A failed connection has level error and is written at once. Any other has level
   * info and is written soon, together with others, if the rules of the pod's namespace let it through. Returns false if they do not.
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

/** Returns the fields of a connection; without `end` those of its opening. */
export function accessFields(facts: AccessFacts, end: AccessEnd | null): AccessFields {
  const fields: AccessFields = { scope: TARGET };
  const put = (name: string, value: string | number): void => {
    fields[name] = value;
  };
  tell({ text: put, label: put, number: put }, facts, end);
  return fields;
}

/** Holds the fields and their order. */
function tell(to: FieldSink, facts: AccessFacts, end: AccessEnd | null): void {
  const { source, destination } = facts;
  to.text('src.addr', source.address);
  label(to, 'src.workload', source.workload);
  label(to, 'src.namespace', source.namespace);
  label(to, 'src.identity', source.identity);
  label(to, 'src.cluster', source.cluster);
  to.text('dst.addr', destination.address);
  put(to, 'dst.hbone_addr', facts.hboneAddress);
  label(to, 'dst.service', facts.serviceHostname);
  label(to, 'dst.workload', destination.workload);
  label(to, 'dst.namespace', destination.namespace);
  label(to, 'dst.identity', destination.identity);
  label(to, 'dst.cluster', destination.cluster);
  to.label('direction', facts.direction);
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

function label(to: FieldSink, name: string, value: string | null): void {
  if (value !== null && value !== '') to.label(name, value);
}
