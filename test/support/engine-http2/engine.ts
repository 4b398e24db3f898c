import { connect, performServerHandshake } from 'node:http2';
import type { Socket } from 'node:net';
import type {
  ClientTunnel,
  HboneEngine,
  ServeOptions,
  ServerTunnel,
  TunnelOptions,
} from '../../../lib/hbone/engine.ts';
import { acceptStaying, connectStaying } from '../staying-tls.ts';
import { Http2ClientTunnel } from './client-tunnel.ts';
import { Http2ServerTunnel } from './server-tunnel.ts';
import { clientSessionOptions, serverSessionOptions } from './session-options.ts';

/** HBONE on node:http2 over node:tls. */
export const http2Engine: HboneEngine = {
  name: 'http2',

  async serve(socket: Socket, options: ServeOptions): Promise<ServerTunnel> {
    const secured = await acceptStaying(socket, options);
    const session = performServerHandshake(secured.socket, serverSessionOptions(options.settings));
    return new Http2ServerTunnel(session, secured, options);
  },

  async connect(raw: Socket, options: TunnelOptions): Promise<ClientTunnel> {
    const secured = await connectStaying(raw, options);
    const session = connect('https://hbone', {
      ...clientSessionOptions(options.settings),
      createConnection: () => secured.socket,
    });
    return new Http2ClientTunnel(session, secured, options);
  },
};
