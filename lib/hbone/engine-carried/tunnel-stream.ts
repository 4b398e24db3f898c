import type { Duplex } from 'node:stream';
import { MeshError } from '../../errors/mesh-error.ts';
import { closeFd } from '../../linux/netns.ts';
import { resetOnClose } from '../../linux/sockets.ts';
import type { Copy, CopySide } from '../../net/bidi-copy.ts';
import type { RawSocket } from '../../net/raw-socket.ts';
import { SessionTunnelStream } from '../engine-framing/tunnel-stream.ts';
import { CarriedCopy } from './carried-copy.ts';
import { CarriedDuplex } from './carried-duplex.ts';
import type { CarriedStream } from './carried-stream.ts';

/** A stream that a native thread joins with a socket. Tunnels in tunnels, and sockets that cannot leave JavaScript, need its duplex. */
export class CarriedTunnelStream extends SessionTunnelStream<CarriedStream> {
  carry(socket: RawSocket, socketIs: CopySide): Copy | null {
    if (this.isDuplex) return null;
    const { stream } = this;
    if (stream.holds(socket)) return new CarriedCopy(stream, socketIs, (copy) => stream.join(copy));
    if (socket.gone || (stream.over && !stream.delivers)) {
      // One of both has ended before they were joined.
      socket.reset();
      this.reset('reset');
      return new CarriedCopy(stream, socketIs, null);
    }
    // Bytes wait in JavaScript to be written.
    if (!socket.mayLeave) return null;
    const detached = socket.take();
    try {
      return new CarriedCopy(stream, socketIs, (copy) => stream.attach(detached, copy));
    } catch (error) {
      resetOnClose(detached.fd);
      closeFd(detached.fd);
      if (!(error instanceof MeshError)) throw error;
      this.reset('cut');
      throw error;
    }
  }

  protected override makeDuplex(): Duplex {
    return new CarriedDuplex(this.stream, () => this.reset());
  }
}
