import type { ClientTunnel } from '../../../lib/hbone/engine.ts';
import { formatEndpoint } from '../../../lib/net/socket.ts';
import type { Endpoint } from '../../../lib/net/socket.ts';
import type { TunnelRecord } from '../protocol/connections.ts';

/** Facts of a tunnel for records. */
export type TunnelNote = Omit<TunnelRecord, 'reused'>;

/** As long as the tunnels themselves. */
const notes = new WeakMap<ClientTunnel, TunnelNote>();

/** Remembers how a tunnel was made. */
export function noteTunnel(tunnel: ClientTunnel, note: TunnelNote): void {
  notes.set(tunnel, note);
}

/** How a tunnel was made, and whether it stood before `sinceMs` (the clock's now); null for one nobody noted. */
export function tunnelRecord(tunnel: ClientTunnel, sinceMs: number): TunnelRecord | null {
  const note = notes.get(tunnel);
  return note === undefined ? null : { ...note, reused: note.openedAtMs < sinceMs };
}

/** The name both ends can give a tunnel: its TCP connection. */
export function sessionName(client: Endpoint | null, server: Endpoint): string {
  return `${client === null ? '?' : formatEndpoint(client)}>${formatEndpoint(server)}`;
}
