/** A stream of an inbound tunnel (docs/spec/dataplane.md §7.2). */
import { MeshError, asMeshError } from '../../../lib/errors/mesh-error.ts';
import { formatBaggage, parseBaggage } from '../../../lib/hbone/baggage.ts';
import {
  FORWARDED_NETWORK,
  parseForwardedHost,
  parseTraceparent,
} from '../../../lib/hbone/connect-request.ts';
import { forwardedClient } from '../../../lib/hbone/forwarded-client.ts';
import type { IncomingRequest } from '../../../lib/hbone/engine.ts';
import { MAX_AUTHORITY_LENGTH, MAX_FORWARDED_LENGTH } from '../../../lib/hbone/peer-text.ts';
import { bidiCopy, socketEnd } from '../../../lib/net/bidi-copy.ts';
import type { ByteAccount } from '../../../lib/net/held-bytes.ts';
import type { Copy } from '../../../lib/net/bidi-copy.ts';
import { encodeProxyHeader } from '../../../lib/net/proxy-protocol.ts';
import type { RawSocket } from '../../../lib/net/raw-socket.ts';
import { formatEndpoint } from '../../../lib/net/socket.ts';
import type { Endpoint } from '../../../lib/net/socket.ts';
import {
  parseAuthority,
  resolveUpstream,
  telemetryService,
  validateDestination,
} from '../../../lib/state/inbound.ts';
import type { Authority, InboundDenied, InboundUpstream } from '../../../lib/state/inbound.ts';
import type { Passage } from '../../../lib/state/waypoint-guard.ts';
import type { Connection } from '../telemetry/connection.ts';
import { decided, workloadAt } from '../lookups.ts';
import { assertPassage, findPassage } from '../waypoint-check.ts';
import type { PodContext } from '../thread-context.ts';
import type { KnownPod } from '../state-client.ts';
import type { TunnelRecord } from '../protocol/connections.ts';
import { connectUpstream, streamEnd } from '../upstream.ts';

/** The answer to a request whose application is connected. */
export interface ConnectAnswer {
  readonly headers: Readonly<Record<string, string>>;
  /** Bytes that go to the application before the client's own. */
  readonly head: Buffer | null;
}

/** A request to connect, by whichever way it came. */
export interface ArrivedRequest extends Pick<
  IncomingRequest,
  'method' | 'authority' | 'headers' | 'onAborted' | 'refuse'
> {
  /**
   * Answers 200 and joins the client to the application, whose socket it takes in any case; null when the client gave up
   * first.
   */
  carry(application: RawSocket, answer: ConnectAnswer): Copy | null | Promise<Copy | null>;
}

/** A request and where it came from. */
export interface InboundArrival {
  readonly request: ArrivedRequest;
  /** The tunnel's peer. */
  readonly source: Endpoint;
  /** Our end of the tunnel: the address the peer dialled. */
  readonly local: Endpoint;
  /** The peer's identity. */
  readonly identity: string;
  /** The tunnel it came by. */
  readonly tunnel?: TunnelRecord;
  readonly path?: 'same-node';
}

interface Understood {
  readonly local: KnownPod;
  readonly upstream: InboundUpstream;
  readonly passage: Passage;
  /** The client: the tunnel's peer, or whom a waypoint of the pod speaks for. */
  readonly client: Endpoint;
  /** `Forwarded: host=`. */
  readonly forwardedHost: string | null;
}

const REFUSE_BY_DEFAULT = 503;

/** Serves one request to the end of its stream. Never rejects for anything a peer can cause. */
export async function serveRequest(pod: PodContext, arrival: InboundArrival): Promise<void> {
  const peer = arrival.source.ip;
  const refused = pod.admission.enter(peer);
  if (refused !== null) {
    pod.thread.metrics.earlyDenials[refused] += 1;
    const why = `the pod has too many connections (${refused})`;
    denyRequest(pod, arrival, new MeshError('UPSTREAM_CONNECT', why));
    return;
  }
  let carried: Promise<void> | null = null;
  try {
    ({ carried } = await serveAdmitted(pod, arrival));
  } finally {
    const leave = (): void => pod.admission.leave(peer);
    if (carried === null) leave();
    else void carried.then(leave);
  }
}

/** Resolves when the request is decided: with the end of the connection it became, null when it became none. */
async function serveAdmitted(
  pod: PodContext,
  arrival: InboundArrival,
): Promise<{ readonly carried: Promise<void> | null }> {
  const startedMs = pod.thread.clock.monotonic();
  let understood: Understood;
  try {
    understood = await understand(pod, arrival);
  } catch (error) {
    denyRequest(pod, arrival, error);
    return { carried: null };
  }
  const connection = await open(pod, arrival, understood, startedMs);
  try {
    await admit(pod, connection, arrival, understood);
    const copy = await answer(pod, connection, arrival, understood);
    connection.carry(copy);
    // The answer has gone out: the request is decided, the rest is the connection's own life.
    return { carried: copy.done.then(({ error }) => pod.close(connection, error)) };
  } catch (error) {
    // A cut ends the connect to the application, too: what it failed with is not why.
    refuse(arrival.request, connection.cutBy ?? error);
    pod.close(connection, error);
    return { carried: null };
  }
}

/** The request is refused before it is understood. */
function denyRequest(
  pod: PodContext,
  { request, source, local }: InboundArrival,
  error: unknown,
): void {
  refuse(request, error);
  const ends = { source: formatEndpoint(source), destination: formatEndpoint(local) };
  pod.deny({ ...ends, direction: 'inbound' }, error);
}

/** Steps 1 to 5. */
async function understand(pod: PodContext, arrival: InboundArrival): Promise<Understood> {
  const { request, local: dialled } = arrival;
  const authority = requested(request);
  const { state } = pod.thread;
  // Known facts are not awaited: each turn of the promises costs as much as a step of the decision.
  const known = state.knownLocal(pod.pod.uid);
  const local = known instanceof Promise ? await known : known;
  const stream = { authority, localIp: dialled.ip, workload: local.workload };
  const validated = decided(pod, (view) => validateDestination(view, stream));
  const mismatch = validated instanceof Promise ? await validated : validated;
  if (mismatch !== null) throw denial(mismatch);
  const settings = {
    illegalPorts: pod.thread.ownPorts,
    localhostAppTunnel: pod.thread.settings.localhostAppTunnel,
  };
  const resolved = decided(pod, (view) => resolveUpstream(view, stream, local.services, settings));
  const upstream = resolved instanceof Promise ? await resolved : resolved;
  if (upstream.kind === 'deny') throw denial(upstream);
  const { headers } = request;
  const forwardedHost = parseForwardedHost(headers['forwarded']);
  const found = findPassage(pod, {
    workload: local.workload,
    services: upstream.candidates,
    port: upstream.destination.port,
    forwardedHost,
    identity: arrival.identity,
  });
  const passage = found instanceof Promise ? await found : found;
  const own = [dialled.ip, ...local.workload.addresses];
  const said = passage.kind === 'waypoint' ? forwardedClient(headers['forwarded'], own) : null;
  return { local, upstream, passage, client: said ?? arrival.source, forwardedHost };
}

/** Steps 1 and 2, and that nothing is longer than what it may name. */
function requested({ method, authority: text, headers }: ArrivedRequest): Authority {
  if (method !== 'CONNECT') {
    throw new MeshError('TUNNEL_PROTOCOL', `method ${JSON.stringify(method)} is not CONNECT`);
  }
  if (text.length > MAX_AUTHORITY_LENGTH) {
    const why = `the request's authority has more than ${MAX_AUTHORITY_LENGTH} characters: ${quoted(text)}`;
    throw new MeshError('TUNNEL_PROTOCOL', why);
  }
  // The end of the header decides, so a part of it must not be read.
  if ((headers['forwarded']?.length ?? 0) > MAX_FORWARDED_LENGTH) {
    const why = `the request's forwarded header has more than ${MAX_FORWARDED_LENGTH} characters`;
    throw new MeshError('TUNNEL_PROTOCOL', why);
  }
  const authority = parseAuthority(text);
  if (authority === null || authority.port === 0) {
    throw new MeshError(
      'TUNNEL_PROTOCOL',
      `the request's authority is not host:port: ${quoted(text)}`,
    );
  }
  return authority;
}

async function open(
  pod: PodContext,
  arrival: InboundArrival,
  { local, upstream, client, forwardedHost }: Understood,
  startedMs: number,
): Promise<Connection> {
  const { request, identity } = arrival;
  const { settings } = pod.thread;
  const { headers } = request;
  const foreign = headers[FORWARDED_NETWORK];
  const isForeign =
    foreign !== undefined && foreign.toLowerCase() !== settings.network.toLowerCase();
  const named = isForeign ? null : workloadAt(pod, client.ip);
  const connection = pod.open({
    direction: 'inbound',
    protocol: 'HBONE',
    source: client,
    destination: upstream.destination,
    actualDestination: arrival.local,
    hboneAddress: request.authority,
    sourceWorkload: named instanceof Promise ? await named : named,
    sourceBaggage: settings.responseBaggage ? parseBaggage(headers['baggage']) : null,
    destinationWorkload: local.workload,
    destinationService: telemetryService(
      upstream.candidates,
      local.workload,
      forwardedHost,
      upstream.destination.port,
    ),
    sourceIdentity: identity,
    trace: parseTraceparent(headers['traceparent']),
    startedMs,
    forwardedHost,
    path: arrival.path ?? null,
  });
  if (arrival.tunnel !== undefined) connection.usesTunnel(arrival.tunnel);
  request.onAborted((reason) => connection.cut(reason ?? gaveUp()));
  return connection;
}

/** Step 6. */
async function admit(
  pod: PodContext,
  connection: Connection,
  arrival: InboundArrival,
  { upstream, passage, client }: Understood,
): Promise<void> {
  assertPassage(pod, passage);
  await pod.policy.admit(connection, {
    sourceIp: client.ip,
    sourceIdentity: arrival.identity,
    destinationIp: upstream.destination.ip,
    destinationPort: upstream.destination.port,
  });
}

/** Steps 7 and 8. */
async function answer(
  pod: PodContext,
  connection: Connection,
  { request, identity }: InboundArrival,
  { local, upstream, client }: Understood,
): Promise<Copy> {
  const { connect, proxyDestination } = upstream;
  const socket = await connectUpstream(
    pod,
    {
      to: connect,
      source: pod.transparent && !connect.loopback ? client.ip : null,
      bindLoopback: connect.loopback ? connect.ip : null,
    },
    connection,
  );
  const { responseBaggage } = pod.thread.settings;
  const copy = await request.carry(socket, {
    headers: responseBaggage ? { baggage: formatBaggage(local.workload) } : {},
    head:
      proxyDestination === null
        ? null
        : encodeProxyHeader({ source: client, destination: proxyDestination, identity }),
  });
  if (copy === null) throw gaveUp();
  return copy;
}

/** A stream of a tunnel as the request it carries; what its connection holds goes to the account. */
export function overTunnel(request: IncomingRequest, bytes: ByteAccount): ArrivedRequest {
  return new TunnelRequest(request, bytes);
}

/** A class, as functions in an object literal are made anew for each request. */
class TunnelRequest implements ArrivedRequest {
  readonly method: string;
  readonly authority: string;
  readonly headers: IncomingRequest['headers'];
  readonly #request: IncomingRequest;
  readonly #bytes: ByteAccount;

  constructor(request: IncomingRequest, bytes: ByteAccount) {
    this.method = request.method;
    this.authority = request.authority;
    this.headers = request.headers;
    this.#request = request;
    this.#bytes = bytes;
  }

  onAborted(...[listener]: Parameters<ArrivedRequest['onAborted']>): void {
    this.#request.onAborted(listener);
  }

  refuse(...[status]: Parameters<ArrivedRequest['refuse']>): void {
    this.#request.refuse(status);
  }

  carry(application: RawSocket, { headers, head }: ConnectAnswer): Copy | null {
    const stream = this.#request.accept(headers);
    if (stream === null) {
      application.reset();
      return null;
    }
    application.first = head;
    return bidiCopy(streamEnd(stream), socketEnd(application), this.#bytes);
  }
}

function quoted(text: string): string {
  return JSON.stringify(text.slice(0, MAX_AUTHORITY_LENGTH));
}

function refuse(request: ArrivedRequest, error: unknown): void {
  request.refuse(asMeshError(error, 'UPSTREAM_CONNECT').policy.http ?? REFUSE_BY_DEFAULT);
}

function denial(denied: InboundDenied): MeshError {
  return new MeshError(denied.code, denied.reason);
}

function gaveUp(): MeshError {
  return new MeshError('TUNNEL_RESET', 'the peer gave up before the connection was made');
}
