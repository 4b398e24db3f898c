/** Turns connections into OTLP spans and log records. */
import { randomBytes } from 'node:crypto';
import { SeverityNumber, SpanKind, SpanStatusCode, TraceFlags } from '@opentelemetry/api';
import type { Attributes, SpanContext } from '@opentelemetry/api';
import type { Resource } from '@opentelemetry/resources';
import type { ReadableLogRecord } from '@opentelemetry/sdk-logs';
import type { ReadableSpan } from '@opentelemetry/sdk-trace';
import { MAX_ATTRIBUTE_CHARS } from './limits.ts';
import type { ConnectionSpan, ExportedConnection } from './model.ts';
import { hrTime } from './model.ts';

/** The origin of the data; one object for all, because the SDK groups by it. */
export interface DataOrigin {
  readonly resource: Resource;
  readonly scope: { readonly name: string; readonly version?: string };
}

/** A connection as it is sent; null for parts that are not wanted. */
export interface ConnectionData {
  readonly span: ReadableSpan | null;
  readonly log: ReadableLogRecord | null;
}

const TRACE_ID_BYTES = 16;
const SPAN_ID_BYTES = 8;
const SEVERITIES = {
  info: { severityText: 'INFO', severityNumber: SeverityNumber.INFO },
  warn: { severityText: 'WARN', severityNumber: SeverityNumber.WARN },
  error: { severityText: 'ERROR', severityNumber: SeverityNumber.ERROR },
} as const;
/** Fields of the access line that other fields of a record hold. */
const NOT_ATTRIBUTES: ReadonlySet<string> = new Set(['scope', 'trace_id']);

/** Makes the span and the log record. The record carries the ids of the span. */
export function connectionData(of: ExportedConnection, origin: DataOrigin): ConnectionData {
  const attributes = attributesOf(of);
  const span = of.span === null ? null : { ...of.span, trace: validTrace(of.span.trace) };
  const ids = span === null ? null : spanIds(span);
  return {
    span: span === null || ids === null ? null : spanData(of, span, ids, attributes, origin),
    log: of.log ? logData(of, ids, attributes, origin) : null,
  };
}

/** Drops ids of a peer that are invalid (W3C: all zeros), because a collector would refuse the whole request. */
function validTrace(trace: ConnectionSpan['trace']): ConnectionSpan['trace'] {
  return trace !== null && validId(trace.traceId) && validId(trace.spanId) ? trace : null;
}

function validId(id: string): boolean {
  return /[^0]/.test(id);
}

function freshId(bytes: number): string {
  return randomBytes(bytes).toString('hex');
}

/** Makes the ids. An inbound connection is a child of the outbound one at the other end, which sent its ids with the request. */
function spanIds({ direction, trace }: ConnectionSpan): SpanContext {
  const traceFlags = TraceFlags.SAMPLED;
  const traceId = trace?.traceId ?? freshId(TRACE_ID_BYTES);
  const own = direction === 'outbound' ? trace?.spanId : undefined;
  return { traceId, spanId: own ?? freshId(SPAN_ID_BYTES), traceFlags };
}

function spanData(
  { fields, endedAtMs }: ExportedConnection,
  span: ConnectionSpan,
  ids: SpanContext,
  attributes: Attributes,
  { resource, scope }: DataOrigin,
): ReadableSpan {
  const inbound = span.direction === 'inbound';
  const { error } = fields;
  const startTime = hrTime(span.startedAtMs);
  return {
    name: span.name,
    kind: inbound ? SpanKind.SERVER : SpanKind.CLIENT,
    spanContext: () => ids,
    ...(inbound && span.trace !== null
      ? {
          parentSpanContext: {
            traceId: span.trace.traceId,
            spanId: span.trace.spanId,
            traceFlags: ids.traceFlags,
            isRemote: true,
          },
        }
      : {}),
    startTime,
    endTime: hrTime(Math.max(span.startedAtMs, endedAtMs)),
    duration: hrTime(Math.max(0, endedAtMs - span.startedAtMs)),
    ended: true,
    status:
      error === undefined
        ? { code: SpanStatusCode.UNSET }
        : { code: SpanStatusCode.ERROR, message: clipped(String(error)) },
    attributes: {
      ...attributes,
      'network.transport': 'tcp',
      'weft.protocol': span.protocol,
      'weft.response_flags': span.responseFlag,
      ...(span.tunnel === null ? {} : { 'weft.tunnel': span.tunnel }),
    },
    links: [],
    events: span.steps.map(([name, afterMs]) => ({
      name,
      time: hrTime(span.startedAtMs + afterMs),
    })),
    resource,
    instrumentationScope: scope,
    droppedAttributesCount: 0,
    droppedEventsCount: 0,
    droppedLinksCount: 0,
  };
}

function logData(
  { fields, severity, endedAtMs, message }: ExportedConnection,
  ids: SpanContext | null,
  attributes: Attributes,
  { resource, scope }: DataOrigin,
): ReadableLogRecord {
  const time = hrTime(endedAtMs);
  const traceId = fields['trace_id'];
  const unsampled =
    typeof traceId === 'string' && validId(traceId)
      ? { traceId, spanId: '', traceFlags: TraceFlags.NONE }
      : null;
  const spanContext = ids ?? unsampled;
  return {
    hrTime: time,
    hrTimeObserved: time,
    ...(spanContext === null ? {} : { spanContext }),
    ...SEVERITIES[severity],
    eventName: 'access',
    body: message,
    resource,
    instrumentationScope: scope,
    attributes,
    droppedAttributesCount: 0,
  };
}

/** Makes attributes with the names of the access line. */
function attributesOf({ fields }: ExportedConnection): Attributes {
  return Object.fromEntries(
    Object.entries(fields)
      .filter(([name]) => !NOT_ATTRIBUTES.has(name))
      .map(([name, value]) => [name, typeof value === 'string' ? clipped(value) : value]),
  );
}

function clipped(text: string): string {
  return text.length <= MAX_ATTRIBUTE_CHARS ? text : `${text.slice(0, MAX_ATTRIBUTE_CHARS - 1)}…`;
}
