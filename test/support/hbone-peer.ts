/** HBONE ends that are no pods of ours: a server in a namespace, a gateway to another network, a client. */
import { once } from 'node:events';
import { connect as connectHttp2, constants } from 'node:http2';
import type { IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http2';
import type { Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { ExecutionContext } from 'ava';
import { http2Engine } from './engine-http2/engine.ts';
import type {
  ClientTunnel,
  HboneEngine,
  IncomingRequest,
  ServerTunnel,
} from '../../lib/hbone/engine.ts';
import type { TestMesh, TestPod } from './listener-kit.ts';
import { tunnelOptions } from './tunnel-kit.ts';

/** A request that a server received. */
export interface SeenRequest {
  readonly authority: string;
  readonly headers: Readonly<Record<string, string | undefined>>;
  /** The identity of the caller. */
  readonly peer: string;
}

/** A server of {@link serveHbone}. */
export interface HbonePeer {
  readonly requests: SeenRequest[];
  readonly tunnels: ServerTunnel[];
}

/** Serves HBONE on port 15008 of a pod that is not enrolled, under an identity. */
export async function serveHbone(
  t: ExecutionContext,
  mesh: TestMesh,
  at: { readonly pod: TestPod; readonly identity: string; readonly engine?: HboneEngine },
  onRequest: (request: IncomingRequest) => Promise<void>,
): Promise<HbonePeer> {
  const { pod, identity, engine = http2Engine } = at;
  const options = tunnelOptions(await mesh.credentials(identity));
  const peer: HbonePeer = { requests: [], tunnels: [] };
  t.teardown(() => {
    for (const tunnel of peer.tunnels) tunnel.destroy();
  });
  const serve = (socket: Socket): void => {
    engine
      .serve(socket, {
        ...options,
        onRequest: (request, tunnel) => {
          const { authority, headers } = request;
          peer.requests.push({ authority, headers, peer: tunnel.peer.identity });
          return onRequest(request);
        },
        onRequestError: (error) => t.log(String(error)),
      })
      .then(
        (tunnel) => peer.tunnels.push(tunnel),
        // A client that turns away during the handshake is part of some tests.
        () => socket.destroy(),
      );
  };
  await pod.serve(15_008, serve);
  return peer;
}

/** Carries each request as it is to `to`, as a gateway does: what is inside is not its business. */
export function splice(
  from: TestPod,
  to: { readonly ip: string; readonly port: number },
): (request: IncomingRequest) => Promise<void> {
  return async (request) => {
    const socket = await from.connect(to.ip, to.port).catch(() => null);
    const stream = socket === null ? null : request.accept({});
    if (socket === null || stream === null) {
      request.refuse(503);
      return;
    }
    stream.duplex.on('error', () => socket.destroy());
    socket.on('error', () => stream.reset());
    stream.duplex.once('close', () => socket.destroy());
    stream.duplex.pipe(socket).pipe(stream.duplex);
  };
}

/** A client tunnel to port 15008 of an address, from a pod that is not enrolled. */
export async function tunnelTo(
  t: ExecutionContext,
  mesh: TestMesh,
  from: { readonly pod: TestPod; readonly identity: string },
  ip: string,
): Promise<ClientTunnel> {
  const socket = await from.pod.connect(ip, 15_008);
  const options = tunnelOptions(await mesh.credentials(from.identity));
  const tunnel = await http2Engine.connect(socket, options);
  t.teardown(() => tunnel.destroy());
  return tunnel;
}

/** An answer to a request. */
export interface RawAnswer {
  readonly status: number | undefined;
  readonly baggage: string | undefined;
  /** The answer was the end of the stream. */
  readonly ended: boolean;
}

/** Sends requests as they are given, right or wrong, over one tunnel. */
export async function rawRequests(
  t: ExecutionContext,
  mesh: TestMesh,
  from: { readonly pod: TestPod; readonly identity: string },
  ip: string,
): Promise<(headers: OutgoingHttpHeaders) => Promise<RawAnswer>> {
  const { clientContext } = await mesh.credentials(from.identity);
  const socket = connectTls({
    socket: await from.pod.connect(ip, 15_008),
    secureContext: clientContext,
    ALPNProtocols: ['h2'],
    checkServerIdentity: () => undefined,
  });
  await once(socket, 'secureConnect');
  const session = connectHttp2('https://hbone', { createConnection: () => socket });
  session.on('error', () => {});
  t.teardown(() => session.destroy());
  return async (headers) => {
    const stream = session.request(headers, { endStream: false });
    stream.on('error', () => {});
    const [answer, flags] = (await once(stream, 'response')) as [IncomingHttpHeaders, number];
    const { ':status': status, baggage } = answer as IncomingHttpHeaders & { ':status'?: number };
    stream.close();
    const ended = (flags & constants.NGHTTP2_FLAG_END_STREAM) !== 0;
    return { status, baggage: baggage?.toString(), ended };
  };
}
