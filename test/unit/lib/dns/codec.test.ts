import test from 'ava';
import packet from 'dns-packet';
import { parseRequest } from '../../../../lib/dns/request.ts';
import type { Query } from '../../../../lib/dns/request.ts';
import { errorResponse, localResponse } from '../../../../lib/dns/response.ts';
import { TcpFrames, frame } from '../../../../lib/dns/tcp-frames.ts';

function question(
  name: string,
  options: {
    readonly type?: 'A' | 'AAAA' | 'TXT';
    readonly flags?: number;
    readonly payload?: number;
    readonly dnssecOk?: boolean;
  } = {},
): Buffer {
  return packet.encode({
    type: 'query',
    id: 0x1234,
    flags: options.flags ?? packet.RECURSION_DESIRED,
    questions: [{ type: options.type ?? 'A', name }],
    additionals:
      options.payload === undefined
        ? []
        : [
            {
              type: 'OPT',
              name: '.',
              udpPayloadSize: options.payload,
              flags: options.dnssecOk === true ? packet.DNSSEC_OK : 0,
              extendedRcode: 0,
              ednsVersion: 0,
              flag_do: options.dnssecOk === true,
              options: [],
            } as unknown as packet.OptAnswer,
          ],
  });
}

function query(message: Buffer): Query {
  const request = parseRequest(message);
  if (request.kind !== 'query') throw new Error(`not a query: ${request.kind}`);
  return request.query;
}

function reply(
  message: Buffer,
  answer: { alias?: string; addresses: string[] },
  protocol: 'udp' | 'tcp' = 'udp',
): Buffer {
  const said = { alias: answer.alias ?? null, addresses: answer.addresses };
  return localResponse(message, query(message), said, protocol);
}

const many = (count: number): string[] =>
  Array.from({ length: count }, (_, index) => `10.0.${index >> 8}.${index & 0xff}`);

test('a question is read with its name in lower case', (t) => {
  const read = query(question('Cart.SHOP.svc', { payload: 1_232, dnssecOk: true }));
  t.like(read.question, { name: 'cart.shop.svc', type: 1, class: 1 });
  t.deepEqual(read.edns, { payload: 1_232, version: 0, dnssecOk: true });
  t.is(query(question('a')).edns, null);
});

test('names that no host can have have no text', (t) => {
  const dotted = Buffer.from(
    '000101000001000000000000 03612e62 02fffe 00 0001 0001'.replaceAll(' ', ''),
    'hex',
  );
  t.is(query(dotted).question.name, null);
  t.is(query(question('.')).question.name, null);
});

test('a response as request is a format error, another opcode is not ours to refuse (spec: dns.md §1)', (t) => {
  const response = question('a');
  response.writeUInt16BE(0x8100, 2);
  t.deepEqual(parseRequest(response), { kind: 'invalid', rcode: 1 });
  const notify = question('a');
  notify.writeUInt16BE(4 << 11, 2);
  t.deepEqual(parseRequest(notify), { kind: 'opaque' });
});

test('broken messages are format errors, fragments deserve no answer', (t) => {
  const whole = question('cart.shop', { payload: 1_232 });
  t.deepEqual(parseRequest(Buffer.alloc(11)), { kind: 'unanswerable' });
  for (let length = 12; length < whole.length; length += 1) {
    t.is(parseRequest(whole.subarray(0, length)).kind, 'invalid', `${length} octets`);
  }
  const none = Buffer.from(whole);
  none.writeUInt16BE(0, 4);
  t.is(parseRequest(none).kind, 'invalid');
  const looped = Buffer.from('000101000001000000000000c00c00010001', 'hex');
  t.is(parseRequest(looped).kind, 'invalid');
});

test('a local answer is authoritative, offers recursion and lives 30 seconds (spec: dns.md §4)', (t) => {
  const decoded = packet.decode(reply(question('cart'), { addresses: ['10.96.4.4', '10.96.4.5'] }));
  t.like(decoded, {
    id: 0x1234,
    type: 'response',
    flag_aa: true,
    flag_ra: true,
    flag_rd: true,
    rcode: 'NOERROR',
  });
  t.deepEqual(
    decoded.answers?.map((record) => ({ ...record })),
    ['10.96.4.4', '10.96.4.5'].map((data) => ({
      name: 'cart',
      type: 'A',
      ttl: 30,
      class: 'IN',
      flush: false,
      data,
    })) as never,
  );
  t.is(decoded.authorities?.length, 0);
  t.is(decoded.additionals?.length, 0);
});

test('no address is NOERROR and nothing else (spec: dns.md §4)', (t) => {
  const decoded = packet.decode(reply(question('cart', { type: 'AAAA' }), { addresses: [] }));
  t.like(decoded, { rcode: 'NOERROR', answers: [], authorities: [], flag_aa: true });
});

test('an alias is a CNAME, and the addresses are those of what it points at (spec: dns.md §4)', (t) => {
  const message = question('Cart.shop.shop.svc.cluster.local', { type: 'AAAA' });
  const decoded = packet.decode(reply(message, { alias: 'cart.shop', addresses: ['fd00::1'] }));
  t.deepEqual(
    decoded.answers?.map((record) => [
      record.name,
      record.type,
      (record as { data?: unknown }).data,
    ]),
    [
      ['cart.shop.shop.svc.cluster.local', 'CNAME', 'cart.shop'],
      ['cart.shop', 'AAAA', 'fd00::1'],
    ],
  );
});

test('owners are in lower case while the question comes back as it was asked (spec: dns.md §4)', (t) => {
  const message = question('CaRt');
  const answered = reply(message, { addresses: ['10.96.4.4'] });
  t.deepEqual(answered.subarray(12, 22), message.subarray(12, 22));
  t.is(packet.decode(answered).answers?.[0]?.name, 'cart');
});

test('EDNS comes back when it was there, with at least 512 octets and its own DO bit (spec: dns.md §4)', (t) => {
  const opt = (payload: number, dnssecOk: boolean): packet.OptAnswer | undefined =>
    packet
      .decode(reply(question('cart', { payload, dnssecOk }), { addresses: ['10.0.0.1'] }))
      .additionals?.find((record): record is packet.OptAnswer => record.type === 'OPT');
  t.like(opt(1_232, true), { udpPayloadSize: 1_232, ednsVersion: 0, flag_do: true });
  t.like(opt(100, false), { udpPayloadSize: 512, flag_do: false });
});

test('over UDP an answer that does not fit is cut off and says so, over TCP it is whole (spec: dns.md §4)', (t) => {
  const addresses = many(100);
  const small = reply(question('cart'), { addresses });
  t.true(small.length <= 512);
  t.true(packet.decode(small).flag_tc);
  const withEdns = reply(question('cart', { payload: 1_232 }), { addresses });
  t.true(withEdns.length <= 1_232 && withEdns.length > 1_100);
  t.true(packet.decode(withEdns).flag_tc);
  const whole = packet.decode(reply(question('cart'), { addresses }, 'tcp'));
  t.false(whole.flag_tc);
  t.is(whole.answers?.length, 100);
  // Compressed names let thirty addresses fit; with whole names only eight would.
  t.is(
    packet.decode(reply(question('a.shop.svc.cluster.local'), { addresses: many(28) })).flag_tc,
    false,
  );
});

test('an answer never outgrows what TCP can carry', (t) => {
  const answered = reply(question('CART'), { addresses: many(6_000) }, 'tcp');
  t.true(answered.length <= 65_535);
  t.true(packet.decode(answered).flag_tc);
});

test('an error repeats the question and takes nothing along', (t) => {
  const message = question('cart', { payload: 1_232 });
  const decoded = packet.decode(errorResponse(message, query(message), 2));
  t.like(decoded, {
    id: 0x1234,
    rcode: 'SERVFAIL',
    type: 'response',
    flag_ra: true,
    flag_aa: false,
  });
  t.is(decoded.questions?.[0]?.name, 'cart');
  const bare = errorResponse(question('cart'), null, 1);
  t.is(bare.length, 12);
});

test('messages on a stream come out whole however they are cut', (t) => {
  const messages = [question('a'), Buffer.alloc(0), question('b.c', { payload: 4_096 })];
  const bytes = Buffer.concat(messages.map(frame));
  for (let size = 1; size <= bytes.length; size += 1) {
    const frames = new TcpFrames();
    const out: Buffer[] = [];
    for (let at = 0; at < bytes.length; at += size) {
      out.push(...frames.push(bytes.subarray(at, at + size)));
    }
    t.deepEqual(out, messages);
    t.false(frames.partial);
  }
});
