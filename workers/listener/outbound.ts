/** A connection that leaves a pod, captured on 15001 (docs/spec/dataplane.md §2). */
import { Backoff } from '../../lib/clock/backoff.ts';
import { present } from '../../lib/errors/assert.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { parseBaggage } from '../../lib/hbone/baggage.ts';
import { connectHeaders, newTrace } from '../../lib/hbone/connect-request.ts';
import type { ClientTunnel, OpenRequest } from '../../lib/hbone/engine.ts';
import type { TunnelKey, TunnelPool } from '../../lib/hbone/pool.ts';
import { connectWithRetry } from '../../lib/hbone/retry.ts';
import type { ConnectAttempt } from '../../lib/hbone/retry.ts';
import { bidiCopy, socketEnd } from '../../lib/net/bidi-copy.ts';
import type { CopyEnd } from '../../lib/net/bidi-copy.ts';
import type { RawSocket } from '../../lib/net/raw-socket.ts';
import { formatEndpoint } from '../../lib/net/socket.ts';
import { spliceSockets } from '../../lib/net/splice-sockets.ts';
import type { CapturedSocket } from './plain/captured-socket.ts';
import type { Connection, ConnectionFacts } from './telemetry/connection.ts';
import { openDouble } from './tunnel/double-tunnel.ts';
import { CONNECT_BACKOFF } from './limits.ts';
import { findRoute } from './outbound-route.ts';
import type { OutboundRoute } from './outbound-route.ts';
import { ownIdentity } from './tunnel/own-identity.ts';
import type { PodContext } from './thread-context.ts';
import { askSameNode } from './same-node/request.ts';
import type { JoinClient } from './same-node/request.ts';
import type { KnownPod } from './state-client.ts';
import { tunnelRecord } from './telemetry/tunnel-notes.ts';
import { connectUpstream, streamEnd } from './upstream.ts';

const PROTOCOLS: Readonly<Record<OutboundRoute['kind'], ConnectionFacts['protocol']>> = {
  passthrough: 'TCP',
  tcp: 'TCP',
  hbone: 'HBONE',
  'double-hbone': 'DOUBLEHBONE',
};

/** Nothing has failed yet. */
const NOTHING: ReadonlySet<never> = new Set();

/** Joins the client's socket to what it was connected to. */
type Carry = JoinClient;

/** Serves one connection to its end, over tunnels of `pool`. Never rejects. */
export async function serveOutbound(
  pod: PodContext,
  captured: CapturedSocket,
  pool: TunnelPool = pod.pool,
): Promise<void> {
  const { socket, source, destination } = captured;
  const startedMs = pod.thread.clock.monotonic();
  let connection: Connection | null = null;
  try {
    assertCaptured(pod, captured);
    // Known facts are not awaited: each turn of the promises costs as much as a step of the decision.
    const known = pod.thread.state.knownLocal(pod.pod.uid);
    const local = known instanceof Promise ? await known : known;
    const attempt = new OutboundAttempts({ pod, pool, captured, local, startedMs });
    const facts = attempt.decide();
    connection = pod.open(facts instanceof Promise ? await facts : facts);
    connection.onCut(() => socket.reset());
    const carry = await attempt.connect(connection);
    const copy = carry(socket);
    connection.carry(copy);
    const { error } = await copy.done;
    pod.close(connection, error);
  } catch (error) {
    // The client must not take the end for an answer without a byte.
    socket.reset();
    if (connection === null) {
      const ends = { source: formatEndpoint(source), destination: formatEndpoint(destination) };
      pod.deny({ ...ends, direction: 'outbound' }, error);
    } else {
      pod.close(connection, error);
    }
  }
}

/**
 * Throws ROUTE_ILLEGAL for a connection that nothing redirected: its client dialled the listener itself. To carry it on
 * would reach the listener again, without end where the address is not one that the mesh knows.
 */
function assertCaptured(pod: PodContext, { local, destination }: CapturedSocket): void {
  if (!pod.thread.ownPorts.has(destination.port)) return;
  if (local.ip !== destination.ip || local.port !== destination.port) return;
  throw new MeshError('ROUTE_ILLEGAL', `port ${destination.port} is the proxy's own`);
}

/** The attempts to connect one captured connection: the first route, and others where it fails. */
class OutboundAttempts {
  readonly #pod: PodContext;
  readonly #pool: TunnelPool;
  readonly #captured: CapturedSocket;
  readonly #local: KnownPod;
  #unreachable: ReadonlySet<string> = NOTHING;
  readonly #trace = newTrace();
  readonly #startedMs: number;
  /** Tunnels that failed a request; another attempt gets a fresh one. */
  #failedTunnels: ReadonlySet<ClientTunnel> = NOTHING;
  /** The one that was asked last. */
  #tunnel: ClientTunnel | null = null;
  #attempts = 0;
  /** For the attempt under way until a peer is asked, milliseconds. */
  #limitMs: number | null = null;
  #route: OutboundRoute | null = null;

  constructor(of: {
    readonly pod: PodContext;
    readonly pool: TunnelPool;
    readonly captured: CapturedSocket;
    readonly local: KnownPod;
    readonly startedMs: number;
  }) {
    this.#pod = of.pod;
    this.#pool = of.pool;
    this.#startedMs = of.startedMs;
    this.#captured = of.captured;
    this.#local = of.local;
  }

  /** Finds a route; what the connection is now. */
  decide(): ConnectionFacts | Promise<ConnectionFacts> {
    const { source, destination } = this.#captured;
    const route = findRoute(this.#pod, {
      source: this.#local.workload,
      sourceIp: source.ip,
      target: destination,
      except: this.#unreachable,
    });
    return route instanceof Promise
      ? route.then((found) => this.#decided(found))
      : this.#decided(route);
  }

  #decided(route: OutboundRoute): ConnectionFacts {
    const { source, destination } = this.#captured;
    const { workload } = this.#local;
    this.#route = route;
    this.#attempts += 1;
    const protocol = PROTOCOLS[route.kind];
    return {
      direction: 'outbound',
      protocol,
      source,
      destination,
      actualDestination: route.peer,
      hboneAddress: route.authority,
      sourceWorkload: workload,
      sourceBaggage: null,
      destinationWorkload: route.workload,
      destinationService: route.service,
      sourceIdentity: protocol !== 'TCP' ? ownIdentity(workload, this.#pod.pod) : null,
      startedMs: this.#startedMs,
      // The client's own bytes carry no id; only a tunnel hands ours on.
      trace: protocol !== 'TCP' ? this.#trace : null,
      route: {
        kind: route.kind,
        via: route.via,
        reason: route.reason,
        attempts: this.#attempts,
      },
    };
  }

  /** Connects along the route, along others when that fails and may be tried again. */
  connect(connection: Connection): Promise<Carry> {
    const { clock, settings, metrics } = this.#pod.thread;
    const { connectRetry } = settings;
    // A destination outside the mesh behaves as it would without a proxy: one attempt.
    const foreign = this.#current.service === null && PROTOCOLS[this.#current.kind] === 'TCP';
    const attempts = foreign ? 1 : connectRetry.attempts;
    // One that cannot be reached must not use up the time of those that can.
    const limit = (index: number): void => {
      const shared = index + 1 < attempts && this.#current.alternatives;
      this.#limitMs = shared ? connectRetry.totalMs / attempts : null;
    };
    const again = async (attempt: ConnectAttempt): Promise<Carry> => {
      connection.assertNotCut();
      metrics.connectRetries += 1;
      connection.retarget(await this.decide());
      limit(attempt.index);
      return this.#connectOnce(connection, attempt);
    };
    limit(0);
    return connectWithRetry(
      (attempt) => (attempt.index === 0 ? this.#connectOnce(connection, attempt) : again(attempt)),
      { attempts, totalMs: connectRetry.totalMs },
      { clock, backoff: new Backoff(CONNECT_BACKOFF) },
    );
  }

  /** Endpoints that failed; they are not tried again while there are others. */
  #noteFailure(): void {
    this.#unreachable = new Set([...this.#unreachable, ...this.#current.through]);
    if (this.#tunnel === null) return;
    this.#failedTunnels = new Set([...this.#failedTunnels, this.#tunnel]);
    this.#tunnel = null;
  }

  get #current(): OutboundRoute {
    return present(this.#route, 'a route was found before connecting');
  }

  async #connectOnce(connection: Connection, attempt: ConnectAttempt): Promise<Carry> {
    try {
      connection.assertNotCut();
      const { peer, kind, alternatives } = this.#current;
      attempt.elsewhere = alternatives;
      attempt.direct = PROTOCOLS[kind] === 'TCP';
      if (kind === 'hbone') {
        const request = this.#request(connection, attempt, this.#captured.socket);
        const asking = this.#askSameNode(connection, request, attempt);
        const join = asking === null ? null : await asking;
        if (join === null) {
          const wait = { avoid: this.#failedTunnels, limitMs: this.#limitMs };
          const stream = await this.#pool.open(this.#tunnelKey(), request, wait);
          // Cut while the peer was asked: nobody wants the stream any more.
          if (connection.cutBy !== null) stream.reset('cut');
          connection.assertNotCut();
          return carriedBy(streamEnd(stream), this.#pod);
        }
        connection.retarget({ ...connection.facts, path: 'same-node' });
        return join;
      }
      if (kind === 'double-hbone') {
        return carriedBy(await this.#openDouble(connection, attempt), this.#pod);
      }
      const request = { to: peer, source: null, bindLoopback: null, limitMs: this.#limitMs };
      const upstream = await connectUpstream(this.#pod, request, connection);
      return (client) => spliceSockets(client, upstream, this.#pod.bytes);
    } catch (error) {
      this.#noteFailure();
      throw error;
    }
  }

  #askSameNode(
    connection: Connection,
    request: OpenRequest,
    attempt: ConnectAttempt,
  ): ReturnType<typeof askSameNode> {
    const { workload } = this.#local;
    const { source } = this.#captured;
    const asked = { route: this.#current, workload, source, request };
    return askSameNode(this.#pod, { ...asked, attempt }, connection);
  }

  async #openDouble(connection: Connection, attempt: ConnectAttempt): Promise<CopyEnd> {
    const request = {
      pool: this.#pool,
      gateway: this.#tunnelKey(),
      innerIdentities: this.#current.innerSans,
      // The gateway's own application is the far end, which is asked later.
      connect: this.#request(connection, null, null),
      avoid: this.#failedTunnels,
      limitMs: this.#limitMs,
      onAsk: () => {
        attempt.asked = true;
      },
    };
    const { end, headers, identity } = await openDouble(this.#pod, request, connection);
    const { baggage } = headers;
    // Without a word of the peer the gateway is all that is known of the destination.
    const described =
      baggage === undefined
        ? {}
        : {
            destinationBaggage: parseBaggage(baggage),
            destinationIdentity: identity,
          };
    connection.retarget({ ...connection.facts, ...described });
    return end;
  }

  #tunnelKey(): TunnelKey {
    const { expectedSans, peer } = this.#current;
    return {
      sourceIdentity: ownIdentity(this.#local.workload, this.#pod.pod),
      expectedIdentities: expectedSans,
      destinationIp: peer.ip,
      destinationPort: peer.port,
      sourceIp: this.#captured.source.ip,
    };
  }

  /** Makes the request to a tunnel; notes it in the attempt when the application is behind the tunnel. */
  #request(
    connection: Connection,
    attempt: ConnectAttempt | null,
    client: RawSocket | null,
  ): OpenRequest {
    const { authority, service } = this.#current;
    const { source } = this.#captured;
    return {
      authority: present(authority, 'a resolved tunnel route has its authority'),
      headers: connectHeaders({
        sourceIp: source.ip,
        sourcePort: source.port,
        sourceWorkload: this.#local.workload,
        serviceHostname: service?.hostname ?? null,
        trace: this.#trace,
      }),
      client,
      onTunnel: (tunnel) => {
        this.#tunnel = tunnel;
        if (attempt !== null) attempt.asked = true;
        const record = tunnelRecord(tunnel, connection.openedAtMs);
        if (record !== null) connection.usesTunnel(record);
      },
    };
  }
}

function carriedBy(end: CopyEnd, { bytes }: PodContext): Carry {
  return (client) => bidiCopy(socketEnd(client), end, bytes);
}
