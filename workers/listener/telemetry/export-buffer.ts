import { COMPLETE, FAILED, accessFields } from '../../../lib/log/access-log.ts';
import type { AccessEnd, AccessFields } from '../../../lib/log/access-log.ts';
import { isSampled } from '../../../lib/log/access-rules.ts';
import type {
  ConnectionExports,
  ConnectionSpan,
  ExportDrops,
  ExportedConnection,
} from '../../../lib/otlp/model.ts';
import { accessFacts } from './connection-facts.ts';
import type { ConnectionFacts } from './connection-facts.ts';
import { MAX_EXPORT_RECORDS } from '../limits.ts';
import type { ConnectionSteps } from '../protocol/connections.ts';

/** A connection that ended. */
export interface EndedConnection {
  readonly facts: ConnectionFacts;
  readonly end: AccessEnd & { readonly flag: string };
  /** Epoch milliseconds at which it was accepted. */
  readonly openedAtMs: number;
  readonly steps: ConnectionSteps;
  readonly tunnel: string | null;
}

/**
 * Keeps the facts of a thread's connections for export until node-proxy asks: the thread never waits for node-proxy, and facts
 * that find no room are counted instead.
 */
export class ExportBuffer {
  readonly #wanted: ConnectionExports;
  #records: ExportedConnection[] = [];
  #drops = { logs: 0, traces: 0 };

  constructor(wanted: ConnectionExports) {
    this.#wanted = wanted;
  }

  /** A connection ended; `line` are the fields of its access line, null where the access log's rules do not want it. */
  ended(connection: EndedConnection, line: AccessFields | null): void {
    const { facts, end, openedAtMs } = connection;
    const { logs, traceShare } = this.#wanted;
    const log = logs && line !== null;
    const traced = traceShare !== null && isSampled(traceShare, facts.trace?.traceId ?? null);
    if (!log && !traced) return;
    if (!this.#hasRoom(log, traced)) return;
    this.#records.push({
      fields: line ?? accessFields(accessFacts(facts), end),
      severity: end.error === null ? 'info' : 'error',
      message: COMPLETE,
      endedAtMs: openedAtMs + end.durationMs,
      log,
      span: traced ? spanOf(connection) : null,
    });
  }

  /** A connection was refused before it was understood: a line, and no span. */
  denied(line: AccessFields, nowMs: number): void {
    if (!this.#wanted.logs || !this.#hasRoom(true, false)) return;
    const severity = 'warn';
    this.#records.push({
      fields: line,
      severity,
      message: FAILED,
      endedAtMs: nowMs,
      log: true,
      span: null,
    });
  }

  /** Everything since the last call. */
  take(): { readonly records: readonly ExportedConnection[]; readonly dropped: ExportDrops } {
    const taken = { records: this.#records, dropped: this.#drops };
    this.#records = [];
    this.#drops = { logs: 0, traces: 0 };
    return taken;
  }

  #hasRoom(log: boolean, traced: boolean): boolean {
    if (this.#records.length < MAX_EXPORT_RECORDS) return true;
    if (log) this.#drops.logs += 1;
    if (traced) this.#drops.traces += 1;
    return false;
  }
}

function spanOf({ facts, end, openedAtMs, steps, tunnel }: EndedConnection): ConnectionSpan {
  const { hostname } = facts.destinationService ?? {};
  const target = hostname ?? facts.destinationWorkload?.name ?? 'passthrough';
  return {
    startedAtMs: openedAtMs,
    direction: facts.direction,
    trace: facts.trace ?? null,
    // Few names: an address would make one for each client of the world outside.
    name: target === 'passthrough' ? target : `${target}:${facts.destination.port}`,
    protocol: facts.protocol,
    responseFlag: end.flag,
    tunnel,
    steps: (
      [
        ['understood', steps.understoodMs],
        ['admitted', steps.admittedMs],
        ['connected', steps.connectedMs],
        ['first byte', steps.firstByteMs],
      ] as const
    ).flatMap(([name, afterMs]) => (afterMs === null ? [] : [[name, afterMs] as const])),
  };
}
