import type { Clock } from '../../lib/clock/clock.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import type { AccessFacts, AccessLog, AccessParty } from '../../lib/log/access-log.ts';
import type { TrafficConnection, TrafficMetrics } from '../../lib/metrics/traffic.ts';
import type { DescribedWorkload } from '../../lib/metrics/traffic-labels.ts';
import type { Copy } from '../../lib/net/bidi-copy.ts';
import { formatEndpoint } from '../../lib/net/socket.ts';
import type { Endpoint } from '../../lib/net/socket.ts';
import type { Service, Workload } from '../../lib/state/model.ts';
import { workloadIdentity } from '../../lib/state/workload-identity.ts';
import type { ConnectionRecord } from './protocol.ts';

/** What is known of a connection once it is understood. */
export interface ConnectionFacts {
  readonly direction: 'inbound' | 'outbound';
  readonly protocol: 'HBONE' | 'TCP';
  readonly source: Endpoint;
  /** Where the client wanted to go. */
  readonly destination: Endpoint;
  /** The next hop; of an inbound tunnel its own address. */
  readonly actualDestination: Endpoint;
  readonly hboneAddress: string | null;
  readonly sourceWorkload: Workload | null;
  readonly sourceBaggage: DescribedWorkload | null;
  readonly destinationWorkload: Workload | null;
  readonly destinationService: Service | null;
  /** Proven by TLS: the peer of an inbound tunnel, ourselves on an outbound one. */
  readonly sourceIdentity: string | null;
}

/** Where connections report to. */
export interface ConnectionSinks {
  readonly access: AccessLog;
  readonly traffic: TrafficMetrics;
  readonly clock: Clock;
}

const NO_BYTES = { fromA: 0, fromB: 0 } as const;

/**
 * One connection from the moment it is understood: its metrics, its access line, its record, and the way to cut
 * it. {@link finish} must be called exactly once; later calls do nothing.
 */
export class Connection {
  readonly #sinks: ConnectionSinks;
  readonly #traffic: TrafficConnection;
  readonly #openedAtMs: number;
  readonly #startedMs: number;
  readonly #aborters: (() => void)[] = [];
  #facts: ConnectionFacts;
  #copy: Copy | null = null;
  #cut: MeshError | null = null;
  #drained = false;
  #finished = false;

  constructor(facts: ConnectionFacts, sinks: ConnectionSinks) {
    this.#facts = facts;
    this.#sinks = sinks;
    this.#openedAtMs = sinks.clock.now();
    this.#startedMs = sinks.clock.monotonic();
    this.#traffic = sinks.traffic.open(
      { ...facts, reporter: reporterOf(facts), mutualTls: facts.protocol === 'HBONE' },
      () => ({ sent: this.#bytes.fromB, received: this.#bytes.fromA }),
    );
    sinks.access.opened(accessFacts(facts));
  }

  /** Why it was cut, null while it was not. */
  get cutBy(): MeshError | null {
    return this.#cut;
  }

  /** What is known of it now. */
  get facts(): ConnectionFacts {
    return this.#facts;
  }

  /** Another attempt goes elsewhere; metrics stay under the labels the connection was opened with. */
  retarget(facts: ConnectionFacts): void {
    this.#facts = facts;
  }

  /** Bytes flow from now on. */
  carry(copy: Copy): void {
    this.#copy = copy;
    this.onCut(() => copy.abort());
  }

  /** Ends the connection at once; `why` is what its access line says. */
  cut(why: MeshError): void {
    if (this.#cut !== null || this.#finished) return;
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

  /** Counts and logs the end. The reason it was cut for goes before `error`. */
  finish(error: MeshError | null): void {
    if (this.#finished) return;
    this.#finished = true;
    const reason = this.#drained ? null : (this.#cut ?? error);
    const { fromA, fromB } = this.#bytes;
    const outbound = this.facts.direction === 'outbound';
    this.#traffic.close(reason?.policy.flag ?? '-');
    const { policy, rule } = reason?.detail ?? {};
    this.#sinks.access.complete(accessFacts(this.facts), {
      bytesSent: outbound ? fromA : fromB,
      bytesReceived: outbound ? fromB : fromA,
      durationMs: this.#sinks.clock.monotonic() - this.#startedMs,
      error: reason?.message ?? null,
      policy: typeof policy === 'string' ? policy : null,
      rule: typeof rule === 'number' ? rule : null,
    });
  }

  /** The connection as it is now. */
  record(podUid: string): ConnectionRecord {
    const { facts } = this;
    const { fromA, fromB } = this.#bytes;
    const outbound = facts.direction === 'outbound';
    return {
      podUid,
      direction: facts.direction,
      protocol: facts.protocol,
      source: formatEndpoint(facts.source),
      destination: formatEndpoint(facts.destination),
      actualDestination: formatEndpoint(facts.actualDestination),
      destinationService: facts.destinationService?.hostname ?? null,
      sourceWorkload: facts.sourceWorkload?.name ?? null,
      destinationWorkload: facts.destinationWorkload?.name ?? null,
      sourceIdentity: facts.sourceIdentity,
      destinationIdentity: destinationIdentity(facts),
      bytesSent: outbound ? fromA : fromB,
      bytesReceived: outbound ? fromB : fromA,
      openedAtMs: this.#openedAtMs,
    };
  }

  get #bytes(): { readonly fromA: number; readonly fromB: number } {
    return this.#copy?.counts ?? NO_BYTES;
  }
}

function reporterOf(facts: ConnectionFacts): 'source' | 'destination' {
  return facts.direction === 'outbound' ? 'source' : 'destination';
}

function destinationIdentity(facts: ConnectionFacts): string | null {
  if (facts.protocol !== 'HBONE' || facts.destinationWorkload === null) return null;
  return workloadIdentity(facts.destinationWorkload);
}

function accessFacts(facts: ConnectionFacts): AccessFacts {
  const tls = facts.protocol === 'HBONE';
  return {
    source: party(
      facts.source,
      facts.sourceWorkload,
      facts.sourceBaggage,
      tls ? facts.sourceIdentity : null,
    ),
    destination: party(
      facts.actualDestination,
      facts.destinationWorkload,
      null,
      destinationIdentity(facts),
    ),
    hboneAddress: facts.hboneAddress,
    serviceHostname: facts.destinationService?.hostname ?? null,
    direction: facts.direction,
  };
}

function party(
  endpoint: Endpoint,
  workload: Workload | null,
  baggage: DescribedWorkload | null,
  identity: string | null,
): AccessParty {
  return {
    address: formatEndpoint(endpoint),
    workload: workload?.name ?? baggage?.canonicalName ?? null,
    namespace: workload?.namespace ?? baggage?.namespace ?? null,
    identity,
    cluster: workload?.clusterId ?? baggage?.clusterId ?? null,
  };
}
