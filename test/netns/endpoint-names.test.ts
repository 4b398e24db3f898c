/** Tests endpoints with host names, resolved at a name server of the test. */
import type { ExecutionContext } from 'ava';
import packet from 'dns-packet';
import { AnswerCache } from '../../lib/dns/answer-cache.ts';
import { parseHosts } from '../../lib/dns/hosts-file.ts';
import { parseResolvConf } from '../../lib/dns/resolv-conf.ts';
import { closeFd, openNetns } from '../../lib/linux/netns.ts';
import {
  MAX_NAME_LOOKUPS,
  MAX_OPEN_NAMES,
  NAME_FAILURE_MS,
  NAME_WAIT_MS,
} from '../../workers/listener/limits.ts';
import { MAX_FORWARDS } from '../../workers/listener/dns/limits.ts';
import { NameLookups } from '../../workers/listener/dns/endpoint-names.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { startNameServer } from '../support/name-server.ts';
import type { Asked, NameServer } from '../support/name-server.ts';
import { createNetns } from '../support/netns-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { until } from '../support/until.ts';

const CONF = 'nameserver 127.0.0.1\noptions timeout:30 attempts:1\n';

/** The server's answers by name. A name without an entry does not exist; `silent` gets no answer. */
type Zone = Record<string, readonly packet.Answer[] | 'silent' | 'refused'>;

interface Names {
  readonly names: NameLookups;
  readonly server: NameServer;
  readonly clock: FakeClock;
  /** Returns the questions since the last call, as `type name`, sorted. */
  asked(): string[];
}

/** Starts lookups with a name server on the loopback of a namespace that answers from `zone`. */
async function startNames(
  t: ExecutionContext,
  zone: Zone,
  { conf = CONF, ipv6 = true, server: at = ['127.0.0.1'] } = {},
): Promise<Names> {
  const netns = await createNetns(t);
  const server = await startNameServer(t, netns, at);
  server.answer = (asked) => answerFrom(zone, asked);
  const netnsFd = openNetns(netns.path);
  const clock = new FakeClock();
  const names = new NameLookups({
    ipv6,
    clock,
    netnsFd,
    descriptors: { make: (open) => open() },
    resolvers: { current: parseResolvConf(conf) },
    hosts: { current: parseHosts('') },
    cache: new AnswerCache(clock),
  });
  t.teardown(() => {
    names.close();
    closeFd(netnsFd);
  });
  const asked = (): string[] => server.asked.splice(0).map(questionOf).toSorted();
  return { names, server, clock, asked };
}

function questionOf({ message, protocol }: Asked): string {
  const [question] = packet.decode(message).questions ?? [];
  const text = `${question?.type} ${question?.name}`;
  return protocol === 'udp' ? text : `${text} over TCP`;
}

function answerFrom(zone: Zone, { message, protocol }: Asked): Buffer | null {
  const query = packet.decode(message);
  const [question] = query.questions ?? [];
  const records = zone[question?.name ?? ''];
  if (records === 'silent') return null;
  const rcode = records === undefined ? 3 : records === 'refused' ? 5 : 0;
  const answers = typeof records === 'object' ? records : [];
  const wanted = answers.filter(({ type }) => type === question?.type || type === 'CNAME');
  const cut = protocol === 'udp' && wanted.length > 20;
  return packet.encode({
    type: 'response',
    id: query.id ?? 0,
    flags: packet.RECURSION_DESIRED | rcode | (cut ? packet.TRUNCATED_RESPONSE : 0),
    questions: query.questions ?? [],
    answers: cut ? [] : wanted,
    authorities: rcode === 3 || wanted.length === 0 ? [SOA] : [],
  });
}

const SOA: packet.Answer = {
  type: 'SOA',
  name: 'example',
  ttl: 20,
  data: {
    mname: 'ns.example',
    rname: 'root.example',
    serial: 1,
    refresh: 1,
    retry: 1,
    expire: 1,
    minimum: 20,
  },
};

const a = (name: string, data: string, ttl = 60): packet.Answer => ({ type: 'A', name, ttl, data });
const aaaa = (name: string, data: string): packet.Answer => ({ type: 'AAAA', name, ttl: 60, data });
const cname = (name: string, data: string): packet.Answer => ({
  type: 'CNAME',
  name,
  ttl: 60,
  data,
});
const v4 = (hostname: string) => ({ hostname, preferredFamily: 4 }) as const;
const v6 = (hostname: string) => ({ hostname, preferredFamily: 6 }) as const;

// spec: dataplane.md §6.4
test('names that nobody answers for do not hold up another one', async (t) => {
  const dead = Object.fromEntries(
    Array.from({ length: MAX_NAME_LOOKUPS - 1 }, (_, index) => [
      `dead${index}.example`,
      'silent' as const,
    ]),
  );
  const { names, server, clock } = await startNames(t, {
    ...dead,
    'db.example': [a('db.example', '192.0.2.1')],
  });
  const waiting = Object.keys(dead).map((hostname) => names.resolve(v4(hostname)));
  const failures = waiting.map((one) => t.throwsAsync(one, { message: /no answer within/ }));
  await until(() => server.asked.length === 2 * waiting.length, { what: 'the dead names' });
  t.is(await names.resolve(v4('db.example')), '192.0.2.1', 'while all others are still waited for');
  const others = async (): Promise<void> =>
    void (await until(() => names.underWay === waiting.length, { what: 'the others to end' }));
  await others();
  // A name beyond the limit is refused at once; cached names and running lookups are not.
  const extra = names.resolve(v4('dead0.example'));
  const last = names.resolve(v4('last.example'));
  await t.throwsAsync(names.resolve(v4('more.example')), {
    code: 'ROUTE_NO_UPSTREAM',
    message: `cannot resolve more.example: ${MAX_NAME_LOOKUPS} other names of this pod are being looked up`,
  });
  await t.throwsAsync(last, { message: 'last.example has no address' });
  await clock.advance(NAME_WAIT_MS);
  await Promise.all(failures);
  await t.throwsAsync(extra, { code: 'ROUTE_NO_UPSTREAM' });
  // A connection that gives up does not end its lookup.
  await others();
});

test('names that nobody answers for leave those alone whose answers are known', async (t) => {
  const { names, server, asked } = await startNames(
    t,
    {
      'db.two.example': [cname('db.two.example', 'x.other')],
      'x.other': [a('x.other', '192.0.2.1')],
    },
    { conf: `${CONF}search one.example two.example\n` },
  );
  t.is(await names.resolve(v4('db')), '192.0.2.1');
  t.is(await names.resolve(v6('db')), '192.0.2.1');
  await until(() => names.underWay === 0, { what: 'the lookups to end' });
  asked();
  server.answer = () => null;
  const dead = Array.from({ length: MAX_NAME_LOOKUPS }, (_, index) =>
    t.throwsAsync(names.resolve(v4(`dead${index}.example`)), { message: /the pod is stopping/ }),
  );
  await until(() => server.asked.length === 2 * dead.length, { what: 'the dead names' });
  await t.throwsAsync(names.resolve(v4('more.example')), { message: /are being looked up/ });
  asked();
  t.is(await names.resolve(v4('db')), '192.0.2.1');
  t.is(await names.resolve(v6('db')), '192.0.2.1');
  t.deepEqual(asked(), []);
  names.close();
  await Promise.all(dead);
});

test('a name that has its address takes no place, though nobody answers for the other family', async (t) => {
  const { names, server } = await startNames(t, {});
  server.answer = (question) => {
    const asked = questionOf(question);
    const name = asked.slice('A '.length);
    return asked.startsWith('AAAA')
      ? null
      : answerFrom({ [name]: [a(name, '192.0.2.1', 0)] }, question);
  };
  // More names than a pod may have questions.
  for (let index = 0; index <= MAX_FORWARDS + MAX_NAME_LOOKUPS; index += 1) {
    t.is(await names.resolve(v4(`db${index}.example`)), '192.0.2.1');
  }
  await until(() => names.underWay === MAX_OPEN_NAMES, { what: 'the oldest to be given up' });
  t.is(await names.resolve(v4('db0.example')), '192.0.2.1');
});

test('answers are kept for their lifetime, also those that say that there is none', async (t) => {
  const { names, clock, asked } = await startNames(t, {
    'db.example': [a('db.example', '192.0.2.1')],
  });
  t.is(await names.resolve(v4('db.example')), '192.0.2.1');
  await until(() => names.underWay === 0, { what: 'the lookup to end' });
  t.is(await names.resolve(v4('DB.example')), '192.0.2.1');
  t.deepEqual(asked(), ['A db.example', 'AAAA db.example']);
  const gone = { message: 'gone.example has no address' };
  await t.throwsAsync(names.resolve(v4('gone.example')), gone);
  await t.throwsAsync(names.resolve(v4('gone.example')), gone);
  t.deepEqual(asked(), ['A gone.example', 'AAAA gone.example']);
  await clock.advance(21_000);
  await t.throwsAsync(names.resolve(v4('gone.example')), gone);
  t.deepEqual(asked(), ['A gone.example', 'AAAA gone.example']);
  t.is(await names.resolve(v4('db.example')), '192.0.2.1');
  await until(() => names.underWay === 0, { what: 'the lookup to end' });
  asked();
  await clock.advance(40_000);
  t.is(await names.resolve(v4('db.example')), '192.0.2.1');
  t.true(asked().includes('A db.example'));
});

test('connections to one name share a lookup, and a failure is not repeated at once', async (t) => {
  const zone: Zone = { 'db.example': 'refused' };
  const { names, clock, asked } = await startNames(t, zone, { ipv6: false });
  const refused = {
    code: 'ROUTE_NO_UPSTREAM',
    message: /name servers refuse db.example \(rcode 5\)/,
  };
  await Promise.all(
    [v4, v4, v4].map((of) => t.throwsAsync(names.resolve(of('db.example')), refused)),
  );
  await t.throwsAsync(names.resolve(v4('db.example')), refused);
  t.deepEqual(asked(), ['A db.example']);
  zone['db.example'] = [a('db.example', '192.0.2.1')];
  await clock.advance(NAME_FAILURE_MS);
  t.is(await names.resolve(v4('db.example')), '192.0.2.1');
});

test('the preferred family goes first, and the other one serves where it has nothing', async (t) => {
  const { names } = await startNames(t, {
    'both.example': [a('both.example', '192.0.2.1'), aaaa('both.example', '2001:db8::1')],
    'six.example': [aaaa('six.example', '2001:db8::6')],
  });
  t.is(await names.resolve(v4('both.example')), '192.0.2.1');
  t.is(await names.resolve(v6('both.example')), '2001:db8::1');
  t.is(await names.resolve(v4('six.example')), '2001:db8::6');
});

test('a family that nobody answers for is asked for once, however many connect', async (t) => {
  const { names, server, asked } = await startNames(t, {});
  const zone = { 'four.example': [a('four.example', '192.0.2.1', 0)] };
  server.answer = (question) =>
    questionOf(question).startsWith('AAAA') ? null : answerFrom(zone, question);
  for (let connection = 0; connection < 3; connection += 1) {
    t.is(await names.resolve(v4('four.example')), '192.0.2.1');
  }
  await until(() => server.asked.length === 2, { what: 'both questions' });
  t.deepEqual(asked(), ['A four.example', 'AAAA four.example']);
  t.is(names.underWay, 1);
});

test('without IPv6 nobody is asked for its addresses', async (t) => {
  const zone = { 'six.example': [aaaa('six.example', '2001:db8::6')] };
  const { names, asked } = await startNames(t, zone, { ipv6: false });
  await t.throwsAsync(names.resolve(v6('six.example')), { message: 'six.example has no address' });
  t.deepEqual(asked(), ['A six.example']);
});

test('search domains are tried in order, and a name that may exist ends the search', async (t) => {
  const conf = `${CONF}search one.example two.example\noptions ndots:2\n`;
  const { names, asked } = await startNames(
    t,
    {
      'db.two.example': [a('db.two.example', '192.0.2.2')],
      'x.y': [a('x.y', '192.0.2.3')],
      'refused.one.example': 'refused',
      'refused.two.example': [a('refused.two.example', '192.0.2.4')],
    },
    { conf, ipv6: false },
  );
  t.is(await names.resolve(v4('db')), '192.0.2.2');
  t.deepEqual(asked(), ['A db.one.example', 'A db.two.example']);
  t.is(await names.resolve(v4('x.y')), '192.0.2.3');
  t.deepEqual(asked(), ['A x.y', 'A x.y.one.example', 'A x.y.two.example']);
  t.is(await names.resolve(v4('refused')), '192.0.2.4');
  const impatient = await startNames(
    t,
    { 'dead.one.example': 'silent' },
    { conf: conf.replace('timeout:30', 'timeout:1'), ipv6: false },
  );
  await t.throwsAsync(impatient.names.resolve(v4('dead')), {
    message: /cannot resolve dead: .*did not answer/,
  });
  t.deepEqual(impatient.asked(), ['A dead.one.example']);
});

test('aliases are followed, within an answer and beyond it, and not for ever', async (t) => {
  const { names, asked } = await startNames(
    t,
    {
      'www.example': [cname('www.example', 'x.example'), a('x.example', '192.0.2.1')],
      'far.example': [cname('far.example', 'x.other')],
      'x.other': [a('x.other', '192.0.2.2')],
      'loop.example': [cname('loop.example', 'pool.example')],
      'pool.example': [cname('pool.example', 'loop.example')],
    },
    { ipv6: false },
  );
  t.is(await names.resolve(v4('www.example')), '192.0.2.1');
  t.is(await names.resolve(v4('far.example')), '192.0.2.2');
  t.deepEqual(asked(), ['A far.example', 'A www.example', 'A x.other']);
  await t.throwsAsync(names.resolve(v4('loop.example')), { message: /more than 8 aliases/ });
});

test('an answer that does not fit a datagram is fetched over TCP, and kept', async (t) => {
  const many = Array.from({ length: 40 }, (_, index) => a('many.example', `192.0.2.${index}`));
  const { names, asked } = await startNames(t, { 'many.example': many }, { ipv6: false });
  t.regex(await names.resolve(v4('many.example')), /^192\.0\.2\.\d+$/);
  t.regex(await names.resolve(v4('many.example')), /^192\.0\.2\.\d+$/);
  t.deepEqual(asked(), ['A many.example', 'A many.example over TCP']);
});

test('another server is asked where the first one is gone', async (t) => {
  const conf = 'nameserver 127.0.0.9\nnameserver ::1\noptions timeout:30 attempts:1\n';
  const { names } = await startNames(
    t,
    { 'db.example': [a('db.example', '192.0.2.1')] },
    { conf, server: ['::1'] },
  );
  t.is(await names.resolve(v4('db.example')), '192.0.2.1');
});

test('what is under way ends with the pod', async (t) => {
  const { names, server } = await startNames(t, { 'dead.example': 'silent' });
  const waiting = names.resolve(v4('dead.example'));
  await until(() => server.asked.length === 2, { what: 'the questions' });
  names.close();
  await t.throwsAsync(waiting, { message: /the pod is stopping/ });
  await until(() => names.underWay === 0, { what: 'the lookups to end' });
});
