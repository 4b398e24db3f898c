/** The HBONE engine whose bytes native threads carry; decisions and handshakes stay in JavaScript (docs/decisions/native-carry.md). */
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { closeFd } from '../../linux/netns.ts';
import { RawSocket } from '../../net/raw-socket.ts';
import { FramingClientTunnel } from '../engine-framing/client-tunnel.ts';
import { connectSecured, framingEngine, serveSecured } from '../engine-framing/engine.ts';
import { FramingServerTunnel } from '../engine-framing/server-tunnel.ts';
import type { WireMaker } from '../engine-framing/wire.ts';
import type { HboneEngine, TunnelOptions } from '../engine.ts';
import { handOver } from '../handover/handover.ts';
import type { HandedOver } from '../handover/handover.ts';
import { CLIENT_HEADER_LIST_BYTES, SERVER_HEADER_LIST_BYTES } from '../limits.ts';
import { acceptTlsToLeave, connectTlsToLeave } from '../tls.ts';
import { CarriedWire } from './carried-wire.ts';

/** Threads of a process that carry, at most: one for each JavaScript thread with tunnels. */
const MAX_THREADS = 64;

/** The engine. */
export const carriedEngine: HboneEngine = {
  name: 'carried',

  async serve(socket, options) {
    const secured = await acceptTlsToLeave(socket, options);
    const { leaving, peer } = secured;
    // TLS 1.2 stays in node:tls.
    if (leaving === null) return serveSecured(secured, options);
    return handOver(leaving, (raw, handed) => {
      const makeWire = wireOf(raw, handed, options, true);
      return new FramingServerTunnel(makeWire, peer, options);
    });
  },

  async connect(transport: Duplex, options) {
    // A tunnel in a tunnel has no socket of its own.
    if (!(transport instanceof Socket)) return framingEngine.connect(transport, options);
    const secured = await connectTlsToLeave(transport, options);
    const { leaving, peer } = secured;
    if (leaving === null) return connectSecured(secured, options);
    return handOver(leaving, (raw, handed) => {
      const makeWire = wireOf(raw, handed, options, false);
      return new FramingClientTunnel(makeWire, peer, options);
    });
  },
};

function wireOf(
  raw: Socket,
  handed: HandedOver,
  { settings, rekeyRecords = 0 }: TunnelOptions,
  isServer: boolean,
): WireMaker {
  return (host) => {
    const { fd, read } = new RawSocket(raw).take();
    const { suite, readSecret, writeSecret, writeSequence, unread } = handed;
    try {
      const start = {
        fd,
        isServer,
        cipher: suite,
        readSecret,
        writeSecret,
        readSequence: 0,
        writeSequence,
        unread: read === null ? unread : Buffer.concat([unread, read]),
        received: NO_BYTES,
        maxFrameSize: settings.frameSize,
        maxBlockBytes: isServer ? SERVER_HEADER_LIST_BYTES : CLIENT_HEADER_LIST_BYTES,
        rekeyRecords,
      };
      return new CarriedWire(host, start, MAX_THREADS);
    } catch (error) {
      closeFd(fd);
      throw error;
    }
  };
}

const NO_BYTES = Buffer.alloc(0);
