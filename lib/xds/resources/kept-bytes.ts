import { Writer } from 'protobufjs/minimal.js';

/**
 * Bytes of one block of memory that kept messages share. A block lives as long as the last of its messages: small blocks go soon
 * when messages are replaced one by one, and still cost little beside their content.
 */
const BLOCK_BYTES = 4_096;
/** A larger message has a block of its own. */
const SHARED_BYTES_MAX = 1_024;

/** Encodes every message, one after another. */
const writer = Writer.create();
let block = Buffer.allocUnsafeSlow(BLOCK_BYTES);
let used = 0;

/**
 * Encodes a message whose bytes are kept for long. protobufjs takes the room in which it writes from the same pool as the result, as
 * other code does for what it drops at once: kept bytes would hold five times their size.
 */
export function encodeKept(encode: (writer: Writer) => Writer): Uint8Array {
  writer.pos = 0;
  writer.states = null;
  encode(writer);
  return writer.finishInto(room(writer.pos));
}

function room(bytes: number): Buffer {
  if (bytes > SHARED_BYTES_MAX) return Buffer.allocUnsafeSlow(bytes);
  if (used + bytes > BLOCK_BYTES) {
    block = Buffer.allocUnsafeSlow(BLOCK_BYTES);
    used = 0;
  }
  used += bytes;
  return block.subarray(used - bytes, used);
}
