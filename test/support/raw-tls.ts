/** Opens TLS connections without HTTP/2. */
import { once } from 'node:events';
import { connect as connectTls } from 'node:tls';
import type { TLSSocket } from 'node:tls';
import type { TunnelCredentials } from '../../lib/hbone/credentials.ts';
import { dial } from './tunnel-kit.ts';

/** Connects a plain TLS client with the credentials, for misbehaving peers. */
export async function rawClient(
  t: Parameters<typeof dial>[0],
  port: number,
  own: TunnelCredentials,
  tickets: Buffer[] = [],
  alpn: string[] = ['h2'],
): Promise<TLSSocket> {
  const ticket = tickets.at(-1);
  const socket = connectTls({
    socket: await dial(t, port),
    secureContext: own.clientContext,
    checkServerIdentity: () => undefined,
    ...(alpn.length === 0 ? {} : { ALPNProtocols: alpn }),
    ...(ticket === undefined ? {} : { session: ticket }),
  });
  socket.on('session', (session) => tickets.push(session));
  await once(socket, 'secureConnect');
  socket.on('error', () => {});
  return socket;
}
