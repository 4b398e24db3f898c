import type { Clock } from '../../../lib/clock/clock.ts';
import type { Listed } from '../../../lib/collections/roster.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { accessFields } from '../../../lib/log/access-log.ts';
import type { AccessFields, AccessLog } from '../../../lib/log/access-log.ts';
import type { TrafficConnection, TrafficMetrics } from '../../../lib/metrics/traffic.ts';
import type { Copy, CopyCounts } from '../../../lib/net/bidi-copy.ts';
import { formatEndpoint } from '../../../lib/net/socket.ts';
import type { ConnectionFacts as PolicyFacts } from '../../../lib/policy/model.ts';
import { accessFacts, destinationIdentity, trafficFacts } from './connection-facts.ts';
import type { ConnectionFacts } from './connection-facts.ts';
import type { EndedConnection, ExportBuffer } from './export-buffer.ts';
import { responseFlag } from './response-flag.ts';
import type {
  ConnectionEnd,
  ConnectionRecord,
  ConnectionSteps,
  PolicyRecord,
  TunnelRecord,
} from '../protocol/connections.ts';
import type { ThreadMetrics } from './thread-metrics.ts';

export type { ConnectionFacts } from './connection-facts.ts';

/** The places that connections report to. */
export interface ConnectionSinks {
  readonly access: AccessLog;
  readonly traffic: TrafficMetrics;
  readonly metrics: ThreadMetrics;
  readonly clock: Clock;
  /** Null where telemetry is not exported. */
  readonly exports?: ExportBuffer | null;
}

const NO_COPY = { counts: { fromA: 0, fromB: 0 } } as const;

/**
 * One connection from the moment it is understood: its metrics, its access line, its record, and the way to cut
 * it. {@link finish} must be called exactly once; later calls do nothing.
 */
export class Connection implements Listed {
  place = -1;
  /** The input of policy evaluation; null while policies are not asked. */
  judgedBy: PolicyFacts | null = null;
  /** Epoch milliseconds at which it was accepted. */
  readonly openedAtMs: number;
  readonly #sinks: ConnectionSinks;
  readonly #namespace: string;
  readonly #startedMs: number;
  readonly #aborters: (() => void)[] = [];
  readonly #steps = { understood: 0, admitted: -1, connected: -1, firstByte: -1 };
  #traffic: TrafficConnection | null = null;
  #facts: ConnectionFacts;
  #copy: { readonly counts: Readonly<CopyCounts> } = NO_COPY;
  #tunnel: TunnelRecord | null = null;
  #policy: PolicyRecord | null = null;
  #cut: MeshError | null = null;
  #drained = false;
  #told = false;
  #end: ConnectionEnd | null = null;

  /** `namespace` is that of the pod which owns the line, for the access log's filter. */
  constructor(facts: ConnectionFacts, sinks: ConnectionSinks, namespace = '') {
    this.#facts = facts;
    this.#sinks = sinks;
    this.#namespace = namespace;
    const now = sinks.clock.monotonic();
    this.#startedMs = facts.startedMs ?? now;
    this.openedAtMs = sinks.clock.now() - (now - this.#startedMs);
    this.#steps.understood = now - this.#startedMs;
    // The destination of a double tunnel is known only when both stand (docs/spec/observability.md §2.2).
    if (facts.protocol !== 'DOUBLEHBONE') this.#countOpened();
  }

  /** Why it was cut, null while it was not. */
  get cutBy(): MeshError | null {
    return this.#cut;
  }

  /** Whether its access line has a flag of a failure, or somebody asked for that line while the connection lived. */
  get noteworthy(): boolean {
    return this.#told || (this.#end !== null && this.#end.flag !== '-');
  }

  /** The current facts. */
  get facts(): ConnectionFacts {
    return this.#facts;
  }

  /** Another attempt goes elsewhere, or more is known; metrics stay under the labels the connection was opened with. */
  retarget(facts: ConnectionFacts): void {
    this.#facts = facts;
  }

  /** The tunnel it goes through. */
  usesTunnel(tunnel: TunnelRecord): void {
    this.#tunnel = tunnel;
  }

  /** The verdict of the policies. */
  admitted(policy: PolicyRecord): void {
    this.#policy = policy;
    this.#steps.admitted = this.#elapsedMs;
  }

  /** Bytes flow from now on. */
  carry(copy: Copy): void {
    this.#steps.connected = this.#elapsedMs;
    this.#countOpened();
    this.#copy = copy;
    this.onCut(() => copy.abort());
  }

  /** Ends the connection at once; `why` is what its access line says. */
  cut(why: MeshError): void {
    if (this.#cut !== null || this.#end !== null) return;
    this.#cut = why;
    for (const abort of this.#aborters) abort();
  }

  /** Ends the connection at once because its pod ends; that is no failure of the connection. */
  drain(): void {
    this.#drained = true;
    this.cut(new MeshError('TUNNEL_CLOSED', 'the pod is stopping'));
  }

  /** Calls `abort` when the connection is cut, at once when it already is. */
  onCut(abort: () => void): void {
    if (this.#cut === null) this.#aborters.push(abort);
    else abort();
  }

  /** Throws the reason when the connection was cut meanwhile. */
  assertNotCut(): void {
    if (this.#cut !== null) throw this.#cut;
  }

  /** Counts the time to the first byte of the answer, once it has come; called at each scrape and at the end. */
  observe(): void {
    const { firstFromBMs } = this.#copy.counts;
    if (this.#steps.firstByte >= 0 || firstFromBMs === undefined) return;
    this.#steps.firstByte = Math.max(0, firstFromBMs - this.#startedMs);
    const { direction } = this.#facts;
    const reporter = direction === 'outbound' ? 'source' : 'destination';
    this.#sinks.metrics.firstByte[reporter].observe(this.#steps.firstByte);
  }

  /** Counts and logs the end. The reason it was cut for goes before `error`. */
  finish(error: MeshError | null): void {
    if (this.#end !== null) return;
    const reason = this.#drained ? null : (this.#cut ?? error);
    const flag = responseFlag(reason);
    const { policy, rule } = reason?.detail ?? {};
    this.#end = {
      durationMs: this.#elapsedMs,
      flag,
      error: reason?.message ?? null,
      policy: typeof policy === 'string' ? policy : null,
      rule: typeof rule === 'number' ? rule : null,
    };
    this.observe();
    this.#countOpened();
    this.#traffic?.close(flag);
    const { bytesSent, bytesReceived } = this.#bytes;
    const line = { ...this.#end, bytesSent, bytesReceived };
    const facts = accessFacts(this.#facts);
    const written = this.#sinks.access.complete(facts, line, this.#namespace);
    const { exports } = this.#sinks;
    if (exports !== undefined && exports !== null) {
      const told = written ? accessFields(facts, line) : null;
      this.#export(exports, { ...line, flag }, told);
    }
    // Kept among the last ones, it must not keep its sockets.
    this.#aborters.length = 0;
    this.#copy = { counts: { ...this.#copy.counts } };
  }

  #export(exports: ExportBuffer, end: EndedConnection['end'], line: AccessFields | null): void {
    const { openedAtMs } = this;
    const steps = this.#stepRecord();
    const tunnel = this.#tunnel?.session ?? null;
    exports.ended({ facts: this.#facts, end, openedAtMs, steps, tunnel }, line);
  }

  /** The connection as it is now; `withLine` adds its access line. */
  record(podUid: string, withLine = false): ConnectionRecord {
    const { facts } = this;
    this.#told ||= withLine;
    return {
      podUid,
      direction: facts.direction,
      protocol: facts.protocol,
      path: facts.path ?? null,
      source: formatEndpoint(facts.source),
      destination: formatEndpoint(facts.destination),
      actualDestination: formatEndpoint(facts.actualDestination),
      forwardedHost: facts.forwardedHost ?? null,
      destinationService: facts.destinationService?.hostname ?? null,
      sourceWorkload: facts.sourceWorkload?.name ?? null,
      destinationWorkload: facts.destinationWorkload?.name ?? null,
      sourceIdentity: facts.sourceIdentity,
      destinationIdentity: destinationIdentity(facts),
      ...this.#bytes,
      openedAtMs: this.openedAtMs,
      traceId: facts.trace?.traceId ?? null,
      route: facts.route ?? null,
      tunnel: this.#tunnel,
      policy: this.#policy,
      steps: this.#stepRecord(),
      end: this.#end,
      accessLine: withLine ? this.#line() : null,
    };
  }

  /** The fields of its access line: those of its end, or those of its opening while it lives. */
  #line(): AccessFields {
    const end = this.#end === null ? null : { ...this.#bytes, ...this.#end };
    return accessFields(accessFacts(this.#facts), end);
  }

  #stepRecord(): ConnectionSteps {
    this.observe();
    return {
      understoodMs: this.#steps.understood,
      admittedMs: taken(this.#steps.admitted),
      connectedMs: taken(this.#steps.connected),
      firstByteMs: taken(this.#steps.firstByte),
    };
  }

  #countOpened(): void {
    if (this.#traffic !== null) return;
    this.#traffic = this.#sinks.traffic.open(trafficFacts(this.#facts), () => {
      this.observe();
      const { fromA, fromB } = this.#copy.counts;
      return { sent: fromB, received: fromA };
    });
    const { access } = this.#sinks;
    if (access.writesOpenings) access.opened(accessFacts(this.#facts));
  }

  get #elapsedMs(): number {
    return this.#sinks.clock.monotonic() - this.#startedMs;
  }

  /** Carried so far, both ways. */
  get bytes(): number {
    const { bytesSent, bytesReceived } = this.#bytes;
    return bytesSent + bytesReceived;
  }

  /** The direction as the pod that owns the record sees it. */
  get #bytes(): { readonly bytesSent: number; readonly bytesReceived: number } {
    const { fromA, fromB } = this.#copy.counts;
    const outbound = this.#facts.direction === 'outbound';
    return outbound
      ? { bytesSent: fromA, bytesReceived: fromB }
      : { bytesSent: fromB, bytesReceived: fromA };
  }
}

/** Milliseconds of a step, null where it was not taken. */
function taken(ms: number): number | null {
  return ms < 0 ? null : ms;
}
