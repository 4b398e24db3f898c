/** Frames DNS messages on a TCP stream: two octets of length, then the message (RFC 1035 §4.2.2). Pure. */

/** Cuts a stream into messages. It holds at most one incomplete message: 64 KiB and its length. */
export class TcpFrames {
  #held: Buffer = Buffer.alloc(0);

  /** Whether part of a message is held. */
  get partial(): boolean {
    return this.#held.length > 0;
  }

  /** The messages that are complete now, in order. They are copies, independent of `chunk`. */
  push(chunk: Buffer): Buffer[] {
    const messages: Buffer[] = [];
    let bytes = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    while (bytes.length >= 2) {
      const end = 2 + bytes.readUInt16BE(0);
      if (bytes.length < end) break;
      messages.push(Buffer.from(bytes.subarray(2, end)));
      bytes = bytes.subarray(end);
    }
    this.#held = Buffer.from(bytes);
    return messages;
  }
}

/** Puts the length in front of a message of at most 65,535 octets. */
export function frame(message: Buffer): Buffer {
  const length = Buffer.alloc(2);
  length.writeUInt16BE(message.length, 0);
  return Buffer.concat([length, message]);
}
