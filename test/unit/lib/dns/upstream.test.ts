import test from 'ava';
import packet from 'dns-packet';
import { AnswerCache } from '../../../../lib/dns/answer-cache.ts';
import { parseResolvConf } from '../../../../lib/dns/resolv-conf.ts';
import {
  addressesIn,
  answers,
  followAliases,
  lifetimeOf,
  makeQuestion,
  relayed,
} from '../../../../lib/dns/upstream-answer.ts';
import { readName } from '../../../../lib/dns/wire.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const A = 1;
const AAAA = 28;

function asked(name = 'www.example.com', id = 0x1111): Buffer {
  const question = makeQuestion(name, A);
  question.writeUInt16BE(id, 0);
  return question;
}

function answer(parts: Partial<packet.Packet> & { readonly rcode?: number } = {}): Buffer {
  const { rcode = 0, flags = 0, ...rest } = parts;
  return packet.encode({
    type: 'response',
    id: 0x1111,
    flags: flags | packet.AUTHORITATIVE_ANSWER | packet.RECURSION_DESIRED | rcode,
    questions: [{ type: 'A', name: 'www.example.com' }],
    answers: [{ type: 'A', name: 'www.example.com', ttl: 60, data: '192.0.2.1' }],
    ...rest,
  });
}

const soa = (ttl: number, minimum: number): packet.Answer => ({
  type: 'SOA',
  name: 'example.com',
  ttl,
  data: { mname: 'a', rname: 'b', serial: 1, refresh: 1, retry: 1, expire: 1, minimum },
});

test('an answer is believed when its id, opcode and question are those asked', (t) => {
  t.true(answers(asked(), answer()));
  t.true(answers(asked('WWW.example.COM'), answer()));
  t.false(answers(asked('www.example.com', 0x1112), answer()));
  t.false(answers(asked('www.example.org'), answer()));
  t.false(answers(asked(), answer({ questions: [{ type: 'AAAA', name: 'www.example.com' }] })));
  t.false(answers(asked(), answer({ questions: [] })));
  t.true(answers(asked(), answer({ questions: [], answers: [], rcode: 1 })));
  t.false(answers(asked(), asked()));
  t.false(answers(asked(), Buffer.alloc(3)));
});

test('an answer is passed on as it is, under the id of the client, not authoritative (spec: dns.md §5)', (t) => {
  const original = answer();
  const passed = relayed(original, 0x2222);
  t.like(packet.decode(passed), { id: 0x2222, flag_aa: false, flag_ra: true });
  t.deepEqual(passed.subarray(4), original.subarray(4));
});

test('an answer lives as long as the shortest of its records', (t) => {
  t.is(lifetimeOf(answer())?.seconds, 60);
  t.is(
    lifetimeOf(
      answer({
        answers: [
          { type: 'CNAME', name: 'www.example.com', ttl: 5, data: 'x.example.com' },
          { type: 'A', name: 'x.example.com', ttl: 60, data: '192.0.2.1' },
        ],
      }),
    )?.seconds,
    5,
  );
});

test('a missing name lives as long as its zone says, and not at all without a zone', (t) => {
  const nothing = { answers: [], rcode: 3 };
  t.is(lifetimeOf(answer({ ...nothing, authorities: [soa(300, 20)] }))?.seconds, 20);
  t.is(lifetimeOf(answer({ ...nothing, authorities: [soa(10, 20)] }))?.seconds, 10);
  t.is(lifetimeOf(answer(nothing)), null);
});

test('failures, cut answers and answers without lifetime are not remembered', (t) => {
  t.is(lifetimeOf(answer({ rcode: 2 })), null);
  t.is(lifetimeOf(answer({ flags: packet.TRUNCATED_RESPONSE })), null);
  const zero: packet.Answer = { type: 'A', name: 'www.example.com', ttl: 0, data: '192.0.2.1' };
  t.is(lifetimeOf(answer({ answers: [zero] })), null);
});

test('remembered answers age and go (spec: dns.md §5)', async (t) => {
  const clock = new FakeClock();
  const cache = new AnswerCache(clock);
  cache.put(asked(), 'udp', answer());
  const ttl = (): number | undefined => {
    const known = cache.get(asked('www.example.com', 7), 'udp');
    const [record] = known === null ? [] : (packet.decode(known).answers ?? []);
    return record?.type === 'A' ? record.ttl : undefined;
  };
  t.is(ttl(), 60);
  await clock.advance(20_500);
  t.is(ttl(), 40);
  t.is(cache.get(asked(), 'tcp'), null);
  t.is(cache.get(asked('www.example.org'), 'udp'), null);
  await clock.advance(39_500);
  t.is(ttl(), undefined);
  t.is(cache.size, 0);
});

test('remembered answers are bounded in bytes, the least used goes first', (t) => {
  const clock = new FakeClock();
  const cache = new AnswerCache(clock, 3_000);
  const put = (name: string): void =>
    cache.put(asked(name), 'udp', answer({ questions: [{ type: 'A', name }] }));
  put('first.example');
  for (let index = 0; index < 200; index += 1) {
    put(`n${index}.example`);
    cache.get(asked('first.example'), 'udp');
  }
  t.true(cache.size < 12 && cache.size > 3);
  t.truthy(cache.get(asked('first.example'), 'udp'));
  t.is(cache.get(asked('n0.example'), 'udp'), null);
  cache.put(
    asked(),
    'udp',
    answer({ additionals: [{ type: 'TXT', name: 'x', ttl: 60, data: 'x'.repeat(200) }] }),
  );
  t.truthy(cache.get(asked(), 'udp'));
});

test('the addresses in an answer are read whatever stands between them', (t) => {
  const mixed = answer({
    answers: [
      { type: 'CNAME', name: 'www.example.com', ttl: 5, data: 'x.example.com' },
      { type: 'A', name: 'x.example.com', ttl: 60, data: '192.0.2.1' },
      { type: 'AAAA', name: 'x.example.com', ttl: 60, data: '2001:db8::1' },
      { type: 'A', name: 'x.example.com', ttl: 60, data: '192.0.2.2' },
    ],
  });
  t.deepEqual(addressesIn(mixed, A), ['192.0.2.1', '192.0.2.2']);
  t.deepEqual(addressesIn(mixed, AAAA), ['2001:db8::1']);
  t.deepEqual(addressesIn(mixed.subarray(0, 40), A), []);
});

test('addresses are those at the end of the aliases of the name that was asked for', (t) => {
  const chain = answer({
    answers: [
      { type: 'CNAME', name: 'WWW.example.com', ttl: 60, data: 'x.example.com' },
      { type: 'A', name: 'x.example.com', ttl: 60, data: '192.0.2.1' },
      { type: 'A', name: 'other.example.com', ttl: 60, data: '192.0.2.66' },
    ],
  });
  const told = { addresses: ['192.0.2.1'], alias: null };
  t.deepEqual(followAliases(chain, 'www.example.com', A), told);
  const none = { addresses: [], alias: 'x.example.com' };
  t.deepEqual(followAliases(chain, 'www.example.com', AAAA), none);
  t.deepEqual(followAliases(chain, 'else.example.com', A), { addresses: [], alias: null });
  const loop = answer({
    answers: [
      { type: 'CNAME', name: 'a.example.com', ttl: 60, data: 'b.example.com' },
      { type: 'CNAME', name: 'b.example.com', ttl: 60, data: 'a.example.com' },
    ],
  });
  t.deepEqual(followAliases(loop, 'a.example.com', A).addresses, []);
  t.deepEqual(followAliases(loop.subarray(0, 40), 'a.example.com', A), {
    addresses: [],
    alias: null,
  });
});

test('a name whose pointers do not lead back, or whose labels are not whole, cannot be read', (t) => {
  t.is(
    readName(Buffer.from([1, 0x41, 0xc0, 0x00]), 2),
    null,
    'it ends in the first label, which leads on',
  );
  t.is(readName(Buffer.from([0xc0, 0x00]), 0), null, 'to itself');
  t.is(readName(Buffer.from([0xc0]), 0), null);
  t.is(readName(Buffer.from([5, 0x41]), 0), null);
  t.is(readName(Buffer.from([0x41, 0x41]), 0), null);
  t.is(readName(Buffer.from([1, 0x41, 0, 1, 0x42, 0xc0, 0x00]), 3), 'b.a');
});

test('a resolver configuration is read as resolv.conf(5) has it (spec: dns.md §5)', (t) => {
  t.deepEqual(
    parseResolvConf(
      [
        '# a comment',
        'nameserver 10.0.0.10',
        'nameserver fd00::10 ; the second',
        'nameserver not-an-address',
        'nameserver fe80::1%eth0',
        'nameserver 10.0.0.10',
        'nameserver 10.0.0.11',
        'nameserver 10.0.0.12',
        'search Shop.svc.cluster.local. svc.cluster.local',
        'options ndots:5 timeout:1 attempts:3 rotate',
      ].join('\n'),
    ),
    {
      servers: ['10.0.0.10', 'fd00::10', '10.0.0.11'],
      timeoutMs: 1_000,
      attempts: 3,
      rotate: true,
      search: ['shop.svc.cluster.local', 'svc.cluster.local'],
      ndots: 5,
    },
  );
  t.deepEqual(parseResolvConf(''), {
    servers: [],
    timeoutMs: 5_000,
    attempts: 2,
    rotate: false,
    search: [],
    ndots: 1,
  });
  t.like(parseResolvConf('options timeout:900 attempts:0 ndots:0'), {
    timeoutMs: 30_000,
    attempts: 1,
    ndots: 0,
  });
  t.is(parseResolvConf('options ndots:99').ndots, 15);
});
