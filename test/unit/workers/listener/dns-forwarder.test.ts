import test from 'ava';
import { parseResolvConf } from '../../../../lib/dns/resolv-conf.ts';
import { makeQuestion } from '../../../../lib/dns/upstream-answer.ts';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { Forwarder } from '../../../../workers/listener/dns/forwarder.ts';
import type { ForwarderOptions } from '../../../../workers/listener/dns/forwarder.ts';
import {
  FORWARD_DEADLINE_MS,
  MAX_FORWARDS,
  MAX_WAITING_FORWARDS,
} from '../../../../workers/listener/dns/limits.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const TWO = 'nameserver 10.0.0.1\nnameserver 10.0.0.2\noptions timeout:1 attempts:2';
const question = makeQuestion('www.example.com', 1);

function forwarder(
  exchange: NonNullable<ForwarderOptions['exchange']>,
  conf = TWO,
): { readonly clock: FakeClock; readonly forwarder: Forwarder } {
  const clock = new FakeClock();
  const config = parseResolvConf(conf);
  const descriptors = { make: (open: () => number) => open() };
  const options = { netnsFd: -1, mark: 0, clock, descriptors, resolvers: () => config, exchange };
  return { clock, forwarder: new Forwarder(options) };
}

/** Turns the question into an answer with this code. */
function answer(asked: Buffer, rcode: number): Buffer {
  const message = Buffer.from(asked);
  message.writeUInt16BE(0x8180 | rcode, 2);
  return message;
}

test('servers are asked in order, those that failed lately last (spec: dns.md §5)', async (t) => {
  const asked: string[] = [];
  const { clock, forwarder: own } = forwarder(async ({ server }, message) => {
    asked.push(server);
    if (server === '10.0.0.1') throw new MeshError('UPSTREAM_TIMEOUT', 'silent');
    return answer(message, 0);
  });
  await own.forward(question, 'udp');
  await own.forward(question, 'udp');
  t.deepEqual(asked.splice(0), ['10.0.0.1', '10.0.0.2', '10.0.0.2']);
  await clock.advance(10_001);
  await own.forward(question, 'udp');
  t.deepEqual(asked, ['10.0.0.1', '10.0.0.2']);
});

test('without a descriptor no other server is asked, and none is blamed', async (t) => {
  const asked: string[] = [];
  let exhausted = true;
  const { forwarder: own } = forwarder(async ({ server }, message) => {
    asked.push(server);
    if (exhausted) {
      throw new MeshError('NATIVE_SYSCALL', 'socket', { detail: { errno: 'EMFILE' } });
    }
    return answer(message, 0);
  });
  await t.throwsAsync(own.forward(question, 'udp'), { code: 'NATIVE_SYSCALL' });
  exhausted = false;
  await own.forward(question, 'udp');
  t.deepEqual(asked, ['10.0.0.1', '10.0.0.1']);
});

test('a refusal of one server is passed on only when the others do no better (spec: dns.md §5)', async (t) => {
  const codes: Record<string, number> = { '10.0.0.1': 5, '10.0.0.2': 3 };
  const { forwarder: own } = forwarder(async ({ server }, message) =>
    answer(message, codes[server] ?? 0),
  );
  t.is((await own.forward(question, 'udp')).readUInt16BE(2) & 0xf, 3);
  codes['10.0.0.2'] = 2;
  t.is((await own.forward(question, 'udp')).readUInt16BE(2) & 0xf, 2);
});

test('a refusal is passed on when no descriptor is left to ask the next server', async (t) => {
  const asked: string[] = [];
  const { forwarder: own } = forwarder(async ({ server }, message) => {
    asked.push(server);
    if (asked.length === 1) return answer(message, 5);
    throw new MeshError('NATIVE_SYSCALL', 'socket', { detail: { errno: 'EMFILE' } });
  });
  t.is((await own.forward(question, 'udp')).readUInt16BE(2) & 0xf, 5);
  t.deepEqual(asked, ['10.0.0.1', '10.0.0.2']);
});

test('without a server, or when all are silent, it is an error', async (t) => {
  const silent = async (): Promise<Buffer> => {
    throw new MeshError('UPSTREAM_TIMEOUT', 'silent');
  };
  await t.throwsAsync(forwarder(silent, '').forwarder.forward(question, 'udp'), {
    message: /no name server/,
  });
  await t.throwsAsync(forwarder(silent).forwarder.forward(question, 'udp'), { message: /silent/ });
});

test('questions wait for their turn, no longer than a client does, and no more than fit', async (t) => {
  let underWay = 0;
  const never = new Promise<Buffer>(() => undefined);
  const { clock, forwarder: own } = forwarder(() => {
    underWay += 1;
    return never;
  });
  const given = { up: 0, refused: 0 };
  const ask = (): void => {
    own.forward(question, 'udp').catch((error: unknown) => {
      const timedOut = error instanceof MeshError && error.code === 'UPSTREAM_TIMEOUT';
      given[timedOut ? 'up' : 'refused'] += 1;
    });
  };
  for (let index = 0; index < MAX_FORWARDS + MAX_WAITING_FORWARDS - 1; index += 1) ask();
  await clock.advance(5_000);
  ask();
  ask();
  await clock.advance(0);
  t.is(underWay, MAX_FORWARDS);
  t.deepEqual(given, { up: 0, refused: 1 });
  await clock.advance(FORWARD_DEADLINE_MS - 5_000);
  t.deepEqual(given, { up: MAX_WAITING_FORWARDS - 1, refused: 1 });
  await clock.advance(5_000);
  t.deepEqual(given, { up: MAX_WAITING_FORWARDS, refused: 1 });
});

test('the end of the pod ends what waits', async (t) => {
  const { forwarder: own } = forwarder(
    ({ signal }) =>
      new Promise((_, reject) =>
        signal.addEventListener('abort', () => reject(new Error('aborted'))),
      ),
  );
  const all = Array.from({ length: MAX_FORWARDS + 10 }, () =>
    own.forward(question, 'udp').then(
      () => 'answered',
      () => 'failed',
    ),
  );
  own.close();
  t.deepEqual([...new Set(await Promise.all(all))], ['failed']);
  await t.throwsAsync(own.forward(question, 'udp'));
});
