/** HPACK's Huffman code (RFC 7541 §5.2, appendix B), decoded four bits at a time. */

/**
 * Code lengths of the symbols 0 to 256, the last being the end mark. The code is canonical: among symbols of one length the
 * codes count up in symbol order, so lengths say it all.
 */
const CODE_LENGTHS = Buffer.from(
  Array.from(
    'dnsssssssoussussssssssusssssssss' +
      '6aacd68baa8b8666555666666678f6ca' +
      'd67777777777777777777777878djde6' +
      'f56565666577666567655677777fbeds' +
      'kmkkmmmnmnnnnnonoomnonnnnlmnmnno' +
      'mlkmmnnlnmmolmnnllmlnmnnkmmmnmmn' +
      'qqkjmnmpqqqrrqopjlqrrqrollqqsrrr' +
      'koklmllnmmppooqnqrqqrrrrrsrrrrrq' +
      'u',
    (digit) => Number.parseInt(digit, 36),
  ),
);

const EOS = 256;
const SYMBOLS = 257;
/** A full binary tree of 257 leaves has as many inner nodes. */
const NODES = 256;
const NIBBLE = 16;
const MAX_PADDING_BITS = 7;

/** Entry of {@link transitions}: next node, symbol, and two marks. */
const EMITS = 0x1_0000;
const FAILS = 0x2_0000;

const { transitions, accepting } = build();

let scratch = Buffer.alloc(4_096);

/** Decodes a Huffman-coded string, one character for each byte; null when the code or its padding is wrong. */
export function decodeHuffman(bytes: Buffer, from: number, to: number): string | null {
  // The shortest code has five bits.
  const most = Math.ceil(((to - from) * 8) / 5);
  if (scratch.length < most) scratch = Buffer.alloc(most);
  let node = 0;
  let length = 0;
  for (let index = from; index < to; index += 1) {
    const byte = bytes[index] ?? 0;
    for (const nibble of [byte >>> 4, byte & 15]) {
      const entry = transitions[node * NIBBLE + nibble] ?? FAILS;
      if ((entry & FAILS) !== 0) return null;
      if ((entry & EMITS) !== 0) {
        scratch[length] = entry & 0xff;
        length += 1;
      }
      node = (entry >>> 8) & 0xff;
    }
  }
  return accepting[node] === 1 ? scratch.toString('latin1', 0, length) : null;
}

/** Children of each inner node. Inner nodes have numbers from 0; a leaf is stored as -1 - symbol. */
function tree(): Int16Array {
  const children = new Int16Array(2 * NODES);
  let nodes = 1;
  const order = Array.from({ length: SYMBOLS }, (_, symbol) => symbol).sort(
    (left, right) => lengthOf(left) - lengthOf(right) || left - right,
  );
  let code = 0;
  let length = lengthOf(order[0] ?? 0);
  for (const symbol of order) {
    code <<= lengthOf(symbol) - length;
    length = lengthOf(symbol);
    let node = 0;
    for (let bit = length - 1; bit > 0; bit -= 1) {
      const slot = 2 * node + ((code >>> bit) & 1);
      if (children[slot] === 0) {
        children[slot] = nodes;
        nodes += 1;
      }
      node = children[slot] ?? 0;
    }
    children[2 * node + (code & 1)] = -1 - symbol;
    code += 1;
  }
  return children;
}

function build(): { transitions: Uint32Array; accepting: Uint8Array } {
  const children = tree();
  const table = new Uint32Array(NODES * NIBBLE);
  for (let node = 0; node < NODES; node += 1) {
    for (let nibble = 0; nibble < NIBBLE; nibble += 1) {
      table[node * NIBBLE + nibble] = step(children, node, nibble);
    }
  }
  // A string may end inside a symbol only by fewer than eight bits of the end mark, which is all ones.
  const ends = new Uint8Array(NODES);
  let node = 0;
  for (let bits = 0; bits <= MAX_PADDING_BITS; bits += 1) {
    ends[node] = 1;
    node = children[2 * node + 1] ?? 0;
  }
  return { transitions: table, accepting: ends };
}

function step(children: Int16Array, from: number, nibble: number): number {
  let node = from;
  let emitted = 0;
  for (let bit = 3; bit >= 0; bit -= 1) {
    const next = children[2 * node + ((nibble >>> bit) & 1)] ?? 0;
    if (next >= 0) {
      node = next;
      continue;
    }
    const symbol = -1 - next;
    if (symbol === EOS) return FAILS;
    emitted = EMITS | symbol;
    node = 0;
  }
  return emitted | (node << 8);
}

function lengthOf(symbol: number): number {
  return CODE_LENGTHS[symbol] ?? 0;
}
