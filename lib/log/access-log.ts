/** One line per connection (spec/observability.md §3.1); the field order is part of the format. */
import { AccessGate } from './access-gate.ts';
import type { Logger } from './logger.ts';

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

/** What the line of a connection says. */
export const COMPLETE = 'connection complete';
/** What that of an early denial says. */
export const FAILED = 'connection failed';

/** Writes access lines. */
export class AccessLog {
  readonly #log: Logger;
  readonly #gate: AccessGate;
  readonly #elsewhere: boolean;

  /**
   * `gate` decides about the lines of connections that did not fail. `elsewhere`: lines are wanted by someone besides the
   * log, so that the gate is asked whatever the log's level.
   */
  constructor(log: Logger, gate: AccessGate = new AccessGate(), elsewhere = false) {
    this.#log = log;
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
   * The one line of a connection: error when it failed, else info where the rules of its pod's namespace let it through.
   * Its fields, null where the rules did not.
   */
  complete(facts: AccessFacts, end: AccessEnd, namespace = ''): AccessFields | null {
    if (end.error === null && !this.#elsewhere && !this.#log.isLevelEnabled('info')) return null;
    if (end.error === null && !this.#gate.admits(namespace, facts.traceId)) return null;
    const fields = accessFields(facts, end);
    if (end.error === null) this.#log.info(fields, COMPLETE);
    else this.#log.error(fields, COMPLETE);
    return fields;
  }

  /** The one line of a connection refused before it was understood; its fields. */
  failed(denial: EarlyDenial): AccessFields {
    const fields = {
      scope: 'access',
      'src.addr': denial.source,
      'dst.addr': denial.destination,
      direction: denial.direction,
      error: denial.error,
    };
    this.#log.warn(fields, FAILED);
    return fields;
  }
}

/** What is written of a connection; without its `end` as when it opens. */
export function accessFields(facts: AccessFacts, end: AccessEnd | null): AccessFields {
  const fields = factFields(facts);
  if (end === null) return fields;
  fields['bytes_sent'] = end.bytesSent;
  fields['bytes_recv'] = end.bytesReceived;
  fields['duration'] = `${Math.round(end.durationMs)}ms`;
  if (end.error === null) return fields;
  fields['error'] = end.error;
  put(fields, 'policy', end.policy ?? null);
  if (end.rule !== undefined && end.rule !== null) fields['rule'] = end.rule;
  return fields;
}

/** Names are spelled out: putting them together costs more than all else about a line. */
function factFields(facts: AccessFacts): AccessFields {
  const { source, destination } = facts;
  const fields: AccessFields = { scope: 'access', 'src.addr': source.address };
  put(fields, 'src.workload', source.workload);
  put(fields, 'src.namespace', source.namespace);
  put(fields, 'src.identity', source.identity);
  put(fields, 'src.cluster', source.cluster);
  fields['dst.addr'] = destination.address;
  put(fields, 'dst.hbone_addr', facts.hboneAddress);
  put(fields, 'dst.service', facts.serviceHostname);
  put(fields, 'dst.workload', destination.workload);
  put(fields, 'dst.namespace', destination.namespace);
  put(fields, 'dst.identity', destination.identity);
  put(fields, 'dst.cluster', destination.cluster);
  fields['direction'] = facts.direction;
  put(fields, 'trace_id', facts.traceId);
  put(fields, 'path', facts.path ?? null);
  return fields;
}

function put(fields: AccessFields, name: string, value: string | null): void {
  if (value !== null && value !== '') fields[name] = value;
}
