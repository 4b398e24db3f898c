import test from 'ava';
import * as fc from 'fast-check';
import { FrameParser } from '../../lib/hbone/engine-framing/frame-parser.ts';
import type { FrameHeader, FrameReceiver } from '../../lib/hbone/engine-framing/frame-parser.ts';
import {
  CLIENT_PREFACE,
  ConnectionFault,
  writeFrameHeader,
} from '../../lib/hbone/engine-framing/frames.ts';

interface Frame {
  readonly type: number;
  readonly flags: number;
  readonly id: number;
  readonly payload: Uint8Array;
}

/** Records the frames that arrive, one line of text for each. */
class Recorder implements FrameReceiver {
  readonly lines: string[] = [];
  #data: Buffer[] = [];

  frameBegins(): void {
    this.#data = [];
  }

  frame({ type, flags, id }: Readonly<FrameHeader>, payload: Buffer): void {
    this.lines.push(`${type} ${flags} ${id} ${payload.toString('hex')}`);
  }

  data(piece: Buffer): void {
    this.#data.push(Buffer.from(piece));
  }

  dataEnds({ type, flags, id }: Readonly<FrameHeader>): void {
    this.lines.push(`${type} ${flags} ${id} ${Buffer.concat(this.#data).toString('hex')}`);
  }
}

const limits = { maxFrameSize: 16_384, maxBlockBytes: 16_384, preface: true };

function bytesOf({ type, flags, id, payload }: Frame): Buffer {
  const bytes = Buffer.alloc(9 + payload.length);
  writeFrameHeader(bytes, 0, { type, flags, id }, payload.length);
  bytes.set(payload, 9);
  return bytes;
}

const payload = (length: fc.Arbitrary<number>): fc.Arbitrary<Uint8Array> =>
  length.chain((size) => fc.uint8Array({ minLength: size, maxLength: size }));
const frame: fc.Arbitrary<Frame> = fc
  .constantFrom(
    [0, 0, 600],
    [1, 0, 600],
    [3, 4, 4],
    [4, 0, 0],
    [6, 8, 8],
    [7, 8, 60],
    [8, 4, 4],
    [9, 0, 300],
    [42, 0, 90],
  )
  .chain(([type = 0, least = 0, most = 0]) =>
    fc.record({
      type: fc.constant(type),
      flags: fc.constantFrom(0, 1, 4, 5),
      id: fc.nat(0x7fff_ffff),
      payload: payload(fc.integer({ min: least, max: most })),
    }),
  );

function cut(bytes: Buffer, sizes: readonly number[]): Buffer[] {
  const parts: Buffer[] = [];
  let at = 0;
  for (const size of sizes) {
    parts.push(bytes.subarray(at, at + size));
    at += size;
  }
  return [...parts, bytes.subarray(at)].filter((part) => part.length > 0);
}

test('frames come out the same however their bytes are cut', (t) => {
  fc.assert(
    fc.property(
      fc.array(frame, { maxLength: 12 }),
      fc.array(fc.integer({ min: 1, max: 40 }), { maxLength: 60 }),
      (frames, sizes) => {
        const recorder = new Recorder();
        const parser = new FrameParser(recorder, limits);
        const bytes = Buffer.concat([CLIENT_PREFACE, ...frames.map(bytesOf)]);
        for (const part of cut(bytes, sizes)) parser.push(part);
        t.deepEqual(
          recorder.lines,
          frames
            .filter(({ type }) => type < 10)
            .map(
              ({ type, flags, id, payload }) =>
                `${type} ${flags} ${id} ${Buffer.from(payload).toString('hex')}`,
            ),
        );
      },
    ),
    { numRuns: 500 },
  );
});

test('padding is cut off, and may not be longer than its frame', (t) => {
  fc.assert(
    fc.property(
      fc.uint8Array({ maxLength: 300 }),
      fc.nat(255),
      fc.integer({ min: 1, max: 9 }),
      (content, padding, size) => {
        const recorder = new Recorder();
        const parser = new FrameParser(recorder, { ...limits, preface: false });
        const padded = Buffer.concat([Buffer.from([padding]), content, Buffer.alloc(padding)]);
        const bytes = bytesOf({ type: 0, flags: 8, id: 1, payload: padded });
        for (const part of cut(
          bytes,
          Array.from({ length: 20 }, () => size),
        ))
          parser.push(part);
        t.deepEqual(recorder.lines, [`0 8 1 ${Buffer.from(content).toString('hex')}`]);
      },
    ),
  );
  const parser = new FrameParser(new Recorder(), { ...limits, preface: false });
  t.throws(
    () => parser.push(bytesOf({ type: 0, flags: 8, id: 1, payload: new Uint8Array([5, 0]) })),
    {
      message: /more padding/,
    },
  );
});

test('any bytes end in frames or in a connection fault', (t) => {
  fc.assert(
    fc.property(
      fc.array(fc.uint8Array({ maxLength: 120 }), { maxLength: 8 }),
      fc.boolean(),
      (parts, preface) => {
        const parser = new FrameParser(new Recorder(), { ...limits, preface });
        try {
          for (const part of parts) parser.push(Buffer.from(part));
        } catch (error) {
          t.true(error instanceof ConnectionFault);
        }
      },
    ),
    { numRuns: 2_000 },
  );
  t.pass();
});

for (const [what, wrong] of [
  ['a frame above the maximum', { type: 0, flags: 0, id: 1, payload: new Uint8Array(16_385) }],
  ['a PING of seven bytes', { type: 6, flags: 0, id: 0, payload: new Uint8Array(7) }],
  ['a RST_STREAM of five', { type: 3, flags: 0, id: 1, payload: new Uint8Array(5) }],
  ['a WINDOW_UPDATE of three', { type: 8, flags: 0, id: 1, payload: new Uint8Array(3) }],
  ['SETTINGS of seven', { type: 4, flags: 0, id: 0, payload: new Uint8Array(7) }],
  ['too many SETTINGS', { type: 4, flags: 0, id: 0, payload: new Uint8Array(6 * 65) }],
  ['a GOAWAY of four', { type: 7, flags: 0, id: 0, payload: new Uint8Array(4) }],
] as const) {
  test(`${what} is refused by its header`, (t) => {
    const parser = new FrameParser(new Recorder(), { ...limits, preface: false });
    t.throws(() => parser.push(bytesOf(wrong).subarray(0, 9)), { name: 'ConnectionFault' });
  });
}
