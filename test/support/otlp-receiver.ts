/** A collector that receives OTLP over HTTP, decodes it with the protocol's own messages, and keeps it. */
import { once } from 'node:events';
import type { IncomingHttpHeaders, IncomingMessage, Server, ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { ServerOptions } from 'node:https';
import type { Socket } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { gunzipSync } from 'node:zlib';
import type { ExecutionContext } from 'ava';
import protobuf from 'protobufjs';
import { createServer } from '../../lib/http/node-http.ts';

export type Attributes = Readonly<Record<string, string | number | boolean>>;

export interface ReceivedSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string;
  readonly name: string;
  readonly kind: number;
  readonly startMs: number;
  readonly endMs: number;
  readonly attributes: Attributes;
  readonly events: readonly string[];
  readonly status: { readonly code: number; readonly message: string };
  readonly resource: Attributes;
}

export interface ReceivedLog {
  readonly body: string;
  readonly severity: string;
  readonly traceId: string;
  readonly spanId: string;
  readonly attributes: Attributes;
  readonly resource: Attributes;
}

export interface ReceivedMetric {
  readonly name: string;
  readonly kind: 'gauge' | 'sum' | 'histogram';
  readonly attributes: Attributes;
  /** The value; for a histogram, its count. */
  readonly value: number;
  readonly sum: number | null;
  readonly buckets: readonly number[];
  readonly bounds: readonly number[];
  readonly scope: string;
  readonly resource: Attributes;
}

export interface ReceivedRequest {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
}

const root = await protobuf.load(new URL('../fixtures/otlp.proto', import.meta.url).pathname);
const SERVER_TLS_HANDSHAKE = 'secureConnection';

/** The listening place: a port of this machine, or a descriptor made in a namespace. */
export type Place = { readonly port: number } | { readonly fd: number };

export class OtlpReceiver {
  readonly spans: ReceivedSpan[] = [];
  readonly logs: ReceivedLog[] = [];
  readonly metrics: ReceivedMetric[] = [];
  readonly requests: ReceivedRequest[] = [];
  /** Status of every answer; `hang` sends none. */
  answer: number | 'hang' = 200;
  readonly #sockets = new Set<Socket>();
  readonly #tls: ServerOptions | null;
  #server: Server | null = null;

  private constructor(tls: ServerOptions | null) {
    this.#tls = tls;
  }

  /** Listens until the test ends. */
  static async start(
    t: ExecutionContext,
    place: Place = { port: 0 },
    tls: ServerOptions | null = null,
  ): Promise<OtlpReceiver> {
    const receiver = new OtlpReceiver(tls);
    await receiver.listen(place);
    t.teardown(() => receiver.stop());
    return receiver;
  }

  get port(): number {
    const address = this.#server?.address();
    if (address === undefined || address === null || typeof address === 'string') {
      throw new Error('the receiver does not listen on a port');
    }
    return address.port;
  }

  get url(): string {
    return `${this.#tls === null ? 'http' : 'https'}://127.0.0.1:${this.port}`;
  }

  /** Listens; also restarts the receiver after {@link stop}. */
  async listen(place: Place): Promise<void> {
    const handler = (request: IncomingMessage, response: ServerResponse): void =>
      void this.#serve(request, response);
    const server = this.#tls === null ? createServer(handler) : createTlsServer(this.#tls, handler);
    for (const event of ['connection', SERVER_TLS_HANDSHAKE]) {
      server.on(event, (socket: Socket) => {
        this.#sockets.add(socket);
        socket.on('error', () => undefined);
        socket.once('close', () => this.#sockets.delete(socket));
      });
    }
    server.listen('port' in place ? { ...place, host: '127.0.0.1' } : place);
    await once(server, 'listening');
    this.#server = server;
  }

  /** Breaks all connections and stops listening. */
  async stop(): Promise<void> {
    const server = this.#server;
    this.#server = null;
    if (server === null) return;
    const closed = once(server, 'close');
    server.close();
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  /** Finds the newest point of a metric. */
  metric(name: string, attributes: Attributes = {}): ReceivedMetric | undefined {
    return this.metrics.findLast(
      (metric) =>
        metric.name === name &&
        Object.entries(attributes).every(([key, value]) => metric.attributes[key] === value),
    );
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const sent = await buffer(request);
    const path = (request.url ?? '').split('?')[0] ?? '';
    this.requests.push({ path, headers: request.headers });
    if (this.answer === 'hang') return;
    if (this.answer === 200) {
      this.#take(path, request.headers['content-encoding'] === 'gzip' ? gunzipSync(sent) : sent);
    }
    response.writeHead(this.answer, { 'content-type': 'application/x-protobuf' });
    response.end();
  }

  #take(path: string, body: Buffer): void {
    if (path.endsWith('/v1/traces')) this.spans.push(...spansOf(decode('TracesRequest', body)));
    if (path.endsWith('/v1/logs')) this.logs.push(...logsOf(decode('LogsRequest', body)));
    if (path.endsWith('/v1/metrics'))
      this.metrics.push(...metricsOf(decode('MetricsRequest', body)));
  }
}

type Wire = Readonly<Record<string, unknown>>;

/** Decodes a message with 64-bit numbers as text, bytes as arrays, and empty lists present. */
function decode(type: string, body: Buffer): Wire {
  const message = root.lookupType(`otlp.${type}`);
  const options = { longs: String, bytes: Array, arrays: true };
  return message.toObject(message.decode(body), options);
}

function spansOf(request: Wire): ReceivedSpan[] {
  return list(request, 'resourceSpans').flatMap((of) =>
    list(of, 'scopeSpans').flatMap((scope) =>
      list(scope, 'spans').map((span) => ({
        traceId: hex(span, 'traceId'),
        spanId: hex(span, 'spanId'),
        parentSpanId: hex(span, 'parentSpanId'),
        name: text(span, 'name'),
        kind: number(span, 'kind'),
        startMs: number(span, 'startTimeUnixNano') / 1e6,
        endMs: number(span, 'endTimeUnixNano') / 1e6,
        attributes: attributes(span),
        events: list(span, 'events').map((event) => text(event, 'name')),
        status: {
          code: number(inner(span, 'status'), 'code'),
          message: text(inner(span, 'status'), 'message'),
        },
        resource: attributes(inner(of, 'resource')),
      })),
    ),
  );
}

function logsOf(request: Wire): ReceivedLog[] {
  return list(request, 'resourceLogs').flatMap((of) =>
    list(of, 'scopeLogs').flatMap((scope) =>
      list(scope, 'logRecords').map((log) => ({
        body: text(inner(log, 'body'), 'stringValue'),
        severity: text(log, 'severityText'),
        traceId: hex(log, 'traceId'),
        spanId: hex(log, 'spanId'),
        attributes: attributes(log),
        resource: attributes(inner(of, 'resource')),
      })),
    ),
  );
}

function metricsOf(request: Wire): ReceivedMetric[] {
  return list(request, 'resourceMetrics').flatMap((of) =>
    list(of, 'scopeMetrics').flatMap((scope) =>
      list(scope, 'metrics').flatMap((metric) => {
        const kind = (['gauge', 'sum', 'histogram'] as const).find((name) => name in metric);
        if (kind === undefined) throw new Error(`${text(metric, 'name')} has no data`);
        const histogram = kind === 'histogram';
        return list(inner(metric, kind), 'dataPoints').map((point) => ({
          name: text(metric, 'name'),
          kind,
          attributes: attributes(point),
          value: histogram
            ? number(point, 'count')
            : number(point, 'asDouble') + number(point, 'asInt'),
          sum: histogram ? number(point, 'sum') : null,
          buckets: numbers(point, 'bucketCounts'),
          bounds: numbers(point, 'explicitBounds'),
          scope: text(inner(scope, 'scope'), 'name'),
          resource: attributes(inner(of, 'resource')),
        }));
      }),
    ),
  );
}

function attributes(of: Wire): Attributes {
  return Object.fromEntries(
    list(of, 'attributes').map((pair) => {
      const value = inner(pair, 'value');
      const isNumber = 'intValue' in value || 'doubleValue' in value;
      return [
        text(pair, 'key'),
        isNumber
          ? number(value, 'intValue') + number(value, 'doubleValue')
          : 'boolValue' in value
            ? value['boolValue'] === true
            : text(value, 'stringValue'),
      ];
    }),
  );
}

function list(of: Wire, field: string): Wire[] {
  return (of[field] ?? []) as Wire[];
}

function inner(of: Wire, field: string): Wire {
  return (of[field] ?? {}) as Wire;
}

function text(of: Wire, field: string): string {
  return (of[field] ?? '') as string;
}

function number(of: Wire, field: string): number {
  return Number(of[field] ?? 0);
}

function numbers(of: Wire, field: string): number[] {
  return ((of[field] ?? []) as unknown[]).map(Number);
}

function hex(of: Wire, field: string): string {
  return Buffer.from((of[field] ?? []) as number[]).toString('hex');
}
