import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type {
  ClientTunnel,
  HboneEngine,
  ServeOptions,
  ServerTunnel,
  TunnelOptions,
} from '../engine.ts';
import { CLIENT_HEADER_LIST_BYTES, SERVER_HEADER_LIST_BYTES } from '../limits.ts';
import { acceptTls, connectTls } from '../tls.ts';
import type { SecuredSocket } from '../tls.ts';
import { FramingClientTunnel } from './client-tunnel.ts';
import { FramedWire } from './framed-wire.ts';
import { FramingServerTunnel } from './server-tunnel.ts';

/** The HBONE engine with its own HTTP/2 framing over node:tls. */
export const framingEngine: HboneEngine = {
  name: 'framing',

  async serve(socket: Socket, options: ServeOptions): Promise<ServerTunnel> {
    return serveSecured(await acceptTls(socket, options), options);
  },

  async connect(transport: Duplex, options: TunnelOptions): Promise<ClientTunnel> {
    return connectSecured(await connectTls(transport, options), options);
  },
};

/** Begins the server's end of a tunnel over node:tls. */
export function serveSecured({ socket, peer }: SecuredSocket, options: ServeOptions): ServerTunnel {
  const limits = {
    maxFrameSize: options.settings.frameSize,
    maxBlockBytes: SERVER_HEADER_LIST_BYTES,
    preface: true,
  };
  return new FramingServerTunnel((host) => new FramedWire(socket, host, limits), peer, options);
}

/** Begins the client's end of a tunnel over node:tls. */
export function connectSecured(
  { socket, peer }: SecuredSocket,
  options: TunnelOptions,
): ClientTunnel {
  const limits = {
    maxFrameSize: options.settings.frameSize,
    maxBlockBytes: CLIENT_HEADER_LIST_BYTES,
    preface: false,
  };
  return new FramingClientTunnel((host) => new FramedWire(socket, host, limits), peer, options);
}
