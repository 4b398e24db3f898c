import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type {
  ClientTunnel,
  HboneEngine,
  ServeOptions,
  ServerTunnel,
  TunnelOptions,
} from '../engine.ts';
import { acceptTls, connectTls } from '../tls.ts';
import { FramingClientTunnel } from './client-tunnel.ts';
import { FramingServerTunnel } from './server-tunnel.ts';

/** The HBONE engine with its own HTTP/2 framing over node:tls. */
export const framingEngine: HboneEngine = {
  name: 'framing',

  async serve(socket: Socket, options: ServeOptions): Promise<ServerTunnel> {
    const secured = await acceptTls(socket, options);
    return new FramingServerTunnel(secured.socket, secured.peer, options);
  },

  async connect(transport: Duplex, options: TunnelOptions): Promise<ClientTunnel> {
    const secured = await connectTls(transport, options);
    return new FramingClientTunnel(secured.socket, secured.peer, options);
  },
};
