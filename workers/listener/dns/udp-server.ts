import { createSocket } from 'node:dgram';
import type { RemoteInfo, Socket } from 'node:dgram';
import type { Logger } from '../../../lib/log/logger.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import { closeFd } from '../../../lib/linux/netns.ts';
import { listenUdp } from '../../../lib/linux/udp.ts';
import { ipFamily } from '../../../lib/net/address.ts';
import { literal } from './exchange.ts';
import { UDP_RECEIVE_BUFFER_BYTES } from './limits.ts';

/** The address of a DNS server. */
export interface DnsAddress {
  readonly netnsFd: number;
  readonly address: string;
  readonly port: number;
  readonly mark: number;
  readonly reusePort: boolean;
}

/** The answer to a message; null to stay silent. Never rejects. */
export type AnswerMessage = (message: Buffer) => Promise<Buffer | null>;

/** A UDP socket that answers. */
export class UdpServer {
  readonly #socket: Socket;
  #open = true;

  /** Binds at once. NATIVE_SYSCALL when that fails. */
  constructor(at: DnsAddress, answer: AnswerMessage, log: Logger) {
    const { fd } = listenUdp({ ...at, receiveBufferBytes: UDP_RECEIVE_BUFFER_BYTES });
    const type = ipFamily(at.address) === 6 ? 'udp6' : 'udp4';
    this.#socket = createSocket({ type, lookup: literal });
    this.#socket.on('error', (error) => log.warn({ error: errorText(error) }, 'dns.udp-error'));
    this.#socket.on('message', (message, from) => void this.#serve(message, from, answer));
    try {
      this.#socket.bind({ fd, exclusive: true });
    } catch (error) {
      this.#open = false;
      closeFd(fd);
      throw error;
    }
  }

  /** Takes no more messages, and gives no more answers. Idempotent. */
  close(): void {
    if (!this.#open) return;
    this.#open = false;
    this.#socket.close();
  }

  async #serve(message: Buffer, from: RemoteInfo, answer: AnswerMessage): Promise<void> {
    const reply = await answer(message);
    // A client that is gone is nobody's failure: the result of sending is not looked at.
    if (reply !== null && this.#open) this.#socket.send(reply, from.port, from.address, ignore);
  }
}

function ignore(): void {}
