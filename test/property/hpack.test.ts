import { once } from 'node:events';
import { createServer } from 'node:http2';
import { duplexPair } from 'node:stream';
import test from 'ava';
import * as fc from 'fast-check';
import {
  ConnectionFault,
  frameType,
  headersFrames,
  settingsFrame,
} from '../../lib/hbone/session/frames.ts';
import { HpackDecoder } from '../../lib/hbone/session/hpack-decoder.ts';
import { HpackEncoder } from '../../lib/hbone/session/hpack-encoder.ts';
import { decodeHuffman } from '../../lib/hbone/session/huffman.ts';
import { HpackPeer } from '../support/hpack-peer.ts';

const KIB = 1_024;
const name = fc.stringMatching(/^x-[a-z0-9-]{0,20}$/);
const value = fc.stringMatching(/^[!-~]([ -~]{0,60}[!-~])?$/);
const headers = fc.dictionary(name, value, { maxKeys: 12 });

test('blocks of another encoder, with its table and Huffman codes, decode to what was meant', async (t) => {
  const peer = new HpackPeer();
  t.teardown(() => peer.close());
  // One decoder for all: the tables of both ends must stay the same from block to block.
  const decoder = new HpackDecoder(4_096, 64 * KIB);
  await fc.assert(
    fc.asyncProperty(headers, async (sent) => {
      const { fields, oversized } = decoder.decode(await peer.block(sent));
      t.false(oversized);
      const got = Object.fromEntries(fields.map((field) => [field.name, field.value]));
      t.deepEqual(got, { ':method': 'CONNECT', ':authority': 'a:1', ...sent });
    }),
    { numRuns: 150 },
  );
});

test('a decoder that expects repeats gives what any other gives', (t) => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 6 }), (blocks) => {
      const plain = new HpackDecoder(4_096, 16 * KIB);
      const repeating = new HpackDecoder(4_096, 16 * KIB, true);
      for (const bytes of blocks.flatMap((block) => [block, block])) {
        const tries = [plain, repeating].map((decoder) => {
          try {
            return decoder.decode(Buffer.from(bytes));
          } catch (error) {
            return String(error);
          }
        });
        t.deepEqual(tries[1], tries[0]);
        if (typeof tries[0] === 'string') return;
      }
    }),
    { numRuns: 3_000 },
  );
});

test('another decoder reads our blocks', async (t) => {
  const encoder = new HpackEncoder();
  const [near, far] = duplexPair();
  const server = createServer();
  server.emit('connection', near);
  t.teardown(() => near.destroy());
  far.resume();
  far.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
  far.write(settingsFrame([]));
  let id = 1;
  await fc.assert(
    fc.asyncProperty(headers, async (sent) => {
      const fields: [string, string][] = [
        [':method', 'CONNECT'],
        [':authority', '[fd00::1]:80'],
        ...Object.entries(sent),
      ];
      const arrived = once(server, 'stream');
      far.write(headersFrames(id, encoder.encode(fields), { endStream: false, maxFrameSize: 200 }));
      id += 2;
      const [stream, got] = (await arrived) as [{ close(): void }, Record<string, string>];
      stream.close();
      t.deepEqual(Object.fromEntries(Object.entries(got)), Object.fromEntries(fields));
    }),
    { numRuns: 80 },
  );
});

test('a decoder ends any bytes in fields or in a compression error', (t) => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 400 }), (bytes) => {
      const decoder = new HpackDecoder(4_096, 16 * KIB);
      try {
        decoder.decode(Buffer.from(bytes));
      } catch (error) {
        t.true(error instanceof ConnectionFault);
      }
    }),
    { numRuns: 2_000 },
  );
  t.pass();
});

test('a list above its limit is marked and not kept, and the table goes on', (t) => {
  const decoder = new HpackDecoder(4_096, 200);
  const add = Buffer.concat([
    Buffer.from([0x40, 1]),
    Buffer.from('a'),
    Buffer.from([100]),
    Buffer.alloc(100, 'b'),
  ]);
  t.deepEqual(decoder.decode(add), {
    fields: [{ name: 'a', value: 'b'.repeat(100) }],
    oversized: false,
  });
  // The same entry a hundred times, one byte each.
  const { fields, oversized } = decoder.decode(Buffer.alloc(100, 0x80 | 62));
  t.true(oversized);
  t.is(fields.length, 1);
  t.is(decoder.decode(Buffer.from([0x80 | 62])).fields[0]?.name, 'a');
});

test('the table forgets the oldest and obeys its size', (t) => {
  const decoder = new HpackDecoder(100, 16 * KIB);
  const entry = (letter: string): Buffer => Buffer.from([0x40, 1, letter.charCodeAt(0), 1, 65]);
  decoder.decode(Buffer.concat(['a', 'b', 'c'].map(entry)));
  // Each counts 34 bytes: two fit.
  t.is(decoder.decode(Buffer.from([0x80 | 62, 0x80 | 63])).fields[1]?.name, 'b');
  t.throws(() => decoder.decode(Buffer.from([0x80 | 64])), { name: 'ConnectionFault' });
  t.throws(() => decoder.decode(Buffer.from([0x3f, 70])), { message: /table size above/ });
  decoder.decode(Buffer.from([0x20]));
  t.throws(() => decoder.decode(Buffer.from([0x80 | 62])), { name: 'ConnectionFault' });
});

test('Huffman padding must be ones, fewer than eight, and never the end mark', (t) => {
  const decode = (...bytes: number[]): string | null =>
    decodeHuffman(Buffer.from(bytes), 0, bytes.length);
  // '0' is 00000, then three ones.
  t.is(decode(0b0000_0111), '0');
  t.is(decode(0b0000_0000), null);
  t.is(decode(0b0000_0111, 0xff), null);
  t.is(decode(0xff, 0xff, 0xff, 0xff), null);
  t.is(decode(), '');
  t.is(frameType.headers, 1);
});
