import test from 'ava';
import * as fc from 'fast-check';
import { AnswerCache } from '../../lib/dns/answer-cache.ts';
import { parseRequest } from '../../lib/dns/request.ts';
import { errorResponse, localResponse } from '../../lib/dns/response.ts';
import {
  addressesIn,
  answers,
  lifetimeOf,
  makeQuestion,
  relayed,
} from '../../lib/dns/upstream-answer.ts';
import { TcpFrames } from '../../lib/dns/tcp-frames.ts';
import { FakeClock } from '../support/fake-clock.ts';

const RUNS = { numRuns: 3_000 };

/** Bytes that look like a message often enough to get past the header. */
const messages = fc
  .record({
    flags: fc.oneof(fc.constant(0x0100), fc.constant(0x8180), fc.integer({ min: 0, max: 0xffff })),
    counts: fc.array(fc.oneof(fc.integer({ min: 0, max: 3 }), fc.constant(0xffff)), {
      minLength: 4,
      maxLength: 4,
    }),
    body: fc.oneof(
      fc.uint8Array({ maxLength: 300 }),
      fc.array(fc.constantFrom(0, 1, 3, 0x41, 0x63, 0x3f, 0xc0, 0x0c, 0x29, 0xff), {
        maxLength: 120,
      }),
    ),
    cut: fc.integer({ min: 0, max: 12 }),
  })
  .map(({ flags, counts, body, cut }) => {
    const header = Buffer.alloc(12);
    header.writeUInt16BE(flags, 2);
    for (const [index, count] of counts.entries()) header.writeUInt16BE(count, 4 + index * 2);
    const whole = Buffer.concat([header, Buffer.from(body)]);
    return cut < 12 && body.length === 0 ? whole.subarray(0, cut) : whole;
  });

test('a request of any bytes is read, refused or answered, and an answer keeps to its limit', (t) => {
  fc.assert(
    fc.property(messages, (message) => {
      const request = parseRequest(message);
      if (request.kind === 'invalid') errorResponse(message, null, request.rcode);
      if (request.kind !== 'query') return;
      const { query } = request;
      const answer = { alias: 'cart.shop', addresses: ['10.0.0.1', '10.0.0.2'] };
      const limit = Math.max(512, query.edns?.payload ?? 0);
      const reply = localResponse(message, query, answer, 'udp');
      if (reply.length > limit) throw new Error(`${reply.length} octets`);
      errorResponse(message, query, 2);
    }),
    RUNS,
  );
  t.pass();
});

test('an upstream answer of any bytes is read without harm', (t) => {
  const cache = new AnswerCache(new FakeClock());
  const question = makeQuestion('www.example.com', 1);
  fc.assert(
    fc.property(messages, (message) => {
      answers(question, message);
      answers(message.length < 12 ? question : message, message);
      if (message.length < 12) return;
      lifetimeOf(message);
      addressesIn(message, 1);
      relayed(message, 1);
      cache.put(question, 'udp', message);
      cache.get(question, 'udp');
    }),
    RUNS,
  );
  t.pass();
});

test('a stream of any bytes never holds more than one message', (t) => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 2_000 }), { maxLength: 20 }), (chunks) => {
      const frames = new TcpFrames();
      const total = chunks.reduce((sum, chunk) => sum + chunk.length, 0);
      const out = chunks.flatMap((chunk) => frames.push(Buffer.from(chunk)));
      const taken = out.reduce((sum, message) => sum + message.length + 2, 0);
      return taken <= total && total - taken <= 65_537;
    }),
    { numRuns: 500 },
  );
  t.pass();
});
