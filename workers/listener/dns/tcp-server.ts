import { createServer } from 'node:net';
import type { Server, Socket } from 'node:net';
import { TcpFrames, frame } from '../../../lib/dns/tcp-frames.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import { closeFd } from '../../../lib/linux/netns.ts';
import { listenTcp } from '../../../lib/linux/sockets.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { serveFd, socketFd } from '../../../lib/net/socket.ts';
import { MAX_QUERIES_PER_TCP_CLIENT, MAX_TCP_CLIENTS, TCP_IDLE_MS } from './limits.ts';
import type { AnswerMessage, DnsAddress } from './udp-server.ts';

/** A TCP listener that answers DNS messages, several at once on each connection. */
export class TcpServer {
  readonly #server: Server;
  readonly #admits: (fd: number) => boolean;
  readonly #clients = new Set<TcpClient>();
  #open = true;

  /** `admits` says of an accepted connection's descriptor whether it may be kept. */
  constructor(answer: AnswerMessage, admits: (fd: number) => boolean) {
    this.#admits = admits;
    this.#server = createServer({ allowHalfOpen: true }, (socket) => this.#accept(socket, answer));
  }

  /** Binds and listens. Rejects with NATIVE_SYSCALL. */
  async open(at: DnsAddress, log: Logger): Promise<void> {
    const { fd } = listenTcp({ ...at, transparent: 'off' });
    try {
      await serveFd(this.#server, fd, (error) =>
        log.warn({ error: errorText(error) }, 'dns.tcp-error'),
      );
    } catch (error) {
      this.#open = false;
      closeFd(fd);
      throw error;
    }
  }

  /** Accepts nothing more; connections end when their queries are answered. Idempotent. */
  close(): void {
    if (this.#open) this.#server.close();
    this.#open = false;
    for (const client of this.#clients) client.finish();
  }

  /** Ends all connections at once. */
  end(): void {
    this.close();
    for (const client of this.#clients) client.destroy();
  }

  #accept(socket: Socket, answer: AnswerMessage): void {
    socket.on('error', ignore);
    const fd = socketFd(socket);
    const refused = this.#clients.size >= MAX_TCP_CLIENTS || !this.#open;
    if (refused || fd === null || !this.#admits(fd)) {
      socket.destroy();
      return;
    }
    const client = new TcpClient(socket, answer);
    this.#clients.add(client);
    socket.once('close', () => this.#clients.delete(client));
  }
}

/** One connection of a client. Ends by itself when it is idle, also in the middle of a message. */
class TcpClient {
  readonly #socket: Socket;
  readonly #answer: AnswerMessage;
  readonly #frames = new TcpFrames();
  readonly #waiting: Buffer[] = [];
  #idle: NodeJS.Timeout;
  #inHand = 0;
  #finishing = false;

  constructor(socket: Socket, answer: AnswerMessage) {
    this.#socket = socket;
    this.#answer = answer;
    this.#idle = this.#idleTimer();
    socket.on('data', (chunk: Buffer) => this.#read(chunk));
    socket.on('drain', () => this.#next());
    socket.once('end', () => this.finish());
    socket.once('close', () => clearTimeout(this.#idle));
  }

  /** Reads no more; closes when what was read is answered. */
  finish(): void {
    this.#finishing = true;
    this.#socket.pause();
    this.#endWhenDone();
  }

  destroy(): void {
    this.#socket.destroy();
  }

  #read(chunk: Buffer): void {
    const messages = this.#frames.push(chunk);
    if (messages.length > 0) this.#touch();
    this.#waiting.push(...messages);
    this.#next();
  }

  #next(): void {
    while (this.#inHand < MAX_QUERIES_PER_TCP_CLIENT && !this.#socket.writableNeedDrain) {
      const message = this.#waiting.shift();
      if (message === undefined) break;
      this.#inHand += 1;
      void this.#serve(message);
    }
    const full = this.#waiting.length > 0;
    if (full || this.#finishing) this.#socket.pause();
    else this.#socket.resume();
  }

  async #serve(message: Buffer): Promise<void> {
    const reply = await this.#answer(message);
    this.#inHand -= 1;
    if (this.#socket.destroyed) return;
    // Not even a header: whatever follows cannot be trusted to begin where it should.
    if (reply === null) {
      this.#socket.destroy();
      return;
    }
    this.#socket.write(frame(reply));
    this.#touch();
    this.#next();
    this.#endWhenDone();
  }

  #endWhenDone(): void {
    if (this.#finishing && this.#inHand === 0 && this.#waiting.length === 0) this.#socket.end();
  }

  #touch(): void {
    clearTimeout(this.#idle);
    this.#idle = this.#idleTimer();
  }

  #idleTimer(): NodeJS.Timeout {
    return setTimeout(() => {
      if (this.#inHand === 0) this.#socket.destroy();
      else this.#touch();
    }, TCP_IDLE_MS);
  }
}

function ignore(): void {}
