/** The HBONE engine: native threads carry its bytes; decisions and handshakes stay in JavaScript (docs/decisions/native-carry.md). */
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { closeFd } from '../../linux/netns.ts';
import { localPair } from '../../net/local-pair.ts';
import { RawSocket } from '../../net/raw-socket.ts';
import type { HboneEngine, TunnelOptions } from '../engine.ts';
import { handOver } from '../handover/handover.ts';
import type { HandedOver } from '../handover/handover.ts';
import { CLIENT_HEADER_LIST_BYTES, CLOSE_LINGER_MS, SERVER_HEADER_LIST_BYTES } from '../limits.ts';
import { FramingClientTunnel } from '../session/client-tunnel.ts';
import { FramingServerTunnel } from '../session/server-tunnel.ts';
import type { WireMaker } from '../session/wire.ts';
import { acceptTls, connectTls } from '../tls.ts';
import type { SecuredSocket } from '../tls.ts';
import { CarriedWire } from './carried-wire.ts';
import type { LinkStart } from './carried-wire.ts';

/** Threads of a process that carry, at most: one for each JavaScript thread with tunnels. */
const MAX_THREADS = 64;

/** The engine. */
export const carriedEngine: HboneEngine = {
  name: 'carried',

  async serve(socket, options) {
    const secured = await acceptTls(socket, options);
    return carried(secured, options, true, (makeWire) => {
      return new FramingServerTunnel(makeWire, secured.peer, options);
    });
  },

  async connect(socket, options) {
    const secured = await connectTls(socket, options);
    return carried(secured, options, false, (makeWire) => {
      return new FramingClientTunnel(makeWire, secured.peer, options);
    });
  },
};

async function carried<Tunnel>(
  { socket, leaving }: SecuredSocket,
  options: TunnelOptions,
  isServer: boolean,
  begin: (makeWire: WireMaker) => Tunnel,
): Promise<Tunnel> {
  // The carry knows the records of TLS 1.3 only.
  if (leaving === null) {
    try {
      return begin(relayed(socket, options, isServer));
    } catch (error) {
      socket.destroy();
      throw error;
    }
  }
  return handOver(leaving, (raw, handed) => begin(handedOver(raw, handed, options, isServer)));
}

function handedOver(
  raw: Socket,
  handed: HandedOver,
  options: TunnelOptions,
  isServer: boolean,
): WireMaker {
  return (host) => {
    const { fd, read } = new RawSocket(raw).take();
    const { suite, readSecret, writeSecret, writeSequence, unread } = handed;
    const start = {
      ...commonStart(options, isServer),
      fd,
      cipher: suite,
      readSecret,
      writeSecret,
      writeSequence,
      unread: read === null ? unread : Buffer.concat([unread, read]),
    };
    return owning(fd, () => new CarriedWire(host, start, MAX_THREADS));
  };
}

/** Has node:tls encrypt for the carry, through a local socket. */
function relayed(secured: TLSSocket, options: TunnelOptions, isServer: boolean): WireMaker {
  return (host) => {
    const { socket, fd } = localPair();
    const start = { ...commonStart(options, isServer), fd };
    // The last frames are still on their way to the peer, who may read nothing.
    const linger = (): void => {
      const timer = options.clock.after(CLOSE_LINGER_MS, () => secured.destroy());
      secured.once('close', () => timer.cancel());
    };
    socket.on('error', noop);
    // Also when there will be no wire: `secured` is destroyed then.
    if (secured.destroyed) socket.destroy();
    else secured.once('close', () => socket.destroySoon());
    const wire = owning(fd, () => new CarriedWire(host, start, MAX_THREADS, linger));
    secured.once('error', (error) => {
      if (!host.over) host.failed(error);
    });
    secured.pipe(socket).pipe(secured);
    return wire;
  };
}

function commonStart({ settings, rekeyRecords = 0 }: TunnelOptions, isServer: boolean): LinkStart {
  return {
    fd: -1,
    isServer,
    cipher: 'none',
    readSecret: NO_BYTES,
    writeSecret: NO_BYTES,
    readSequence: 0,
    writeSequence: 0,
    unread: NO_BYTES,
    received: NO_BYTES,
    maxFrameSize: settings.frameSize,
    maxBlockBytes: isServer ? SERVER_HEADER_LIST_BYTES : CLIENT_HEADER_LIST_BYTES,
    rekeyRecords,
  };
}

/** Closes the descriptor if `make`, which takes it, throws. */
function owning<Result>(fd: number, make: () => Result): Result {
  try {
    return make();
  } catch (error) {
    closeFd(fd);
    throw error;
  }
}

const NO_BYTES = Buffer.alloc(0);

function noop(): void {}
