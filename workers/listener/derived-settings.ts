/** Values that a thread derives from its settings once: settings never change, and each connection needs them. */
import type { TunnelSettings } from '../../lib/hbone/engine.ts';
import type { TcpOptions } from '../../lib/linux/sockets.ts';
import type { ListenerSettings } from './protocol/settings.ts';

/** How tunnels behave. */
export function tunnelSettings({ http2, handshakeTimeoutMs }: ListenerSettings): TunnelSettings {
  return {
    streamWindow: http2.streamWindow,
    connectionWindow: http2.connectionWindow,
    frameSize: http2.frameSize,
    maxStreams: http2.maxStreamsPerConnection,
    pingIntervalMs: http2.pingIntervalMs,
    pingTimeoutMs: http2.pingTimeoutMs,
    handshakeTimeoutMs,
  };
}

/** Keepalive and the rest, as every TCP socket but the accepted tunnels gets them (docs/spec/dataplane.md §9). */
export function tcpOptions({ keepalive, userTimeoutMs }: ListenerSettings): TcpOptions {
  const { enabled, timeMs, intervalMs, retries } = keepalive;
  return {
    noDelay: true,
    ...(enabled ? { keepalive: { timeMs, intervalMs, retries } } : {}),
    ...(userTimeoutMs > 0 ? { userTimeoutMs } : {}),
  };
}

/** Ports of the proxy's own listeners. */
export function ownPorts({ ports }: ListenerSettings): ReadonlySet<number> {
  const { outbound, inboundHbone, inboundPlaintext, socks5 } = ports;
  const all = [outbound, inboundHbone, inboundPlaintext];
  return new Set(socks5 === null ? all : [...all, socks5]);
}
