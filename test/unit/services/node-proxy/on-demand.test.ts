import test from 'ava';
import type { LookupKey } from '../../../../lib/state/view.ts';
import type { NamedKey } from '../../../../lib/state/wanted-name.ts';
import { keyOfWanted, wantedName } from '../../../../lib/state/wanted-name.ts';
import {
  ASK_AGAIN_MS,
  NAMES_OF_POD,
  NAMES_REFRESH_MS,
  NAMES_UNSENT_MAX,
  NAMES_WAITED_MAX,
} from '../../../../services/node-proxy/limits.ts';
import { AnsweredNames } from '../../../../services/node-proxy/state-thread/on-demand/answered-names.ts';
import { Demands } from '../../../../services/node-proxy/state-thread/on-demand/demands.ts';
import { WantSender } from '../../../../services/node-proxy/state-thread/on-demand/want-sender.ts';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { capturedLog } from '../../../support/bus.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const stamp = (text: string): Uint8Array => Buffer.from(text);
const address = (ip: string): NamedKey => ({ kind: 'address', network: '', ip });
const lookup = (keys: readonly LookupKey[], pod?: string, wait = true) => ({
  type: 'lookup' as const,
  id: 1,
  keys,
  ...(pod === undefined ? {} : { pod }),
  wait,
});

function rig() {
  const clock = new FakeClock();
  const answered = new AnsweredNames();
  const wanted: string[][] = [];
  const forgotten: string[] = [];
  const demands = new Demands({
    clock,
    answered,
    waitMs: 5_000,
    want: (names) => wanted.push([...names]),
    forget: (ids) => forgotten.push(...ids),
  });
  answered.reached({ epoch: 'e', version: 10 });
  return { clock, answered, wanted, forgotten, demands };
}

test('names stand for lookups and back; what is no name is told', (t) => {
  const keys: readonly NamedKey[] = [
    address('10.0.0.1'),
    { kind: 'address', network: 'net-1', ip: '2001:db8::1' },
    { kind: 'service', namespace: 'demo', hostname: 'web.test' },
    { kind: 'uid', uid: 'Kubernetes//Pod/demo/web-1' },
  ];
  for (const key of keys) {
    t.deepEqual(keyOfWanted(wantedName(key)), key);
  }
  for (const name of ['', '*', 'web', 'demo/', '/web.test', '/010.0.0.1', `a/${'b'.repeat(600)}`]) {
    t.is(keyOfWanted(name), null, name);
  }
});

test('a name is known once the rows are held that its answer is in', (t) => {
  const names = new AnsweredNames();
  names.apply('/10.0.0.1', stamp('e/12'));
  t.false(names.knows('/10.0.0.1'), 'no row is held');
  names.reached({ epoch: 'e', version: 11 });
  t.false(names.knows('/10.0.0.1'));
  names.reached({ epoch: 'e', version: 12 });
  t.true(names.knows('/10.0.0.1'));
  // The tables are written anew; what was known stays known.
  names.reached({ epoch: 'f', version: 3 });
  t.true(names.knows('/10.0.0.1'));
  names.apply('/10.0.0.2', stamp('e/1'));
  t.false(names.knows('/10.0.0.2'));
  names.apply('/10.0.0.2', stamp('f/2'));
  t.true(names.knows('/10.0.0.2'));
});

test('a name whose last resource has gone is known again only with a new answer', (t) => {
  const names = new AnsweredNames();
  names.reached({ epoch: 'e', version: 12 });
  names.apply('/10.0.0.1', stamp('e/12'));
  names.emptied('/10.0.0.1');
  t.false(names.knows('/10.0.0.1'));
  names.apply('/10.0.0.1', stamp('e/14'));
  t.false(names.knows('/10.0.0.1'));
  names.reached({ epoch: 'e', version: 14 });
  t.true(names.knows('/10.0.0.1'));
  names.apply('/10.0.0.1', null);
  t.false(names.knows('/10.0.0.1'));
});

test('a lookup waits for all its names, and is answered when they are known', (t) => {
  const { answered, demands, wanted } = rig();
  let told = 0;
  t.false(
    demands.offer(lookup([address('10.0.0.1'), address('10.0.0.2')], 'pod'), () => (told += 1)),
  );
  t.deepEqual(wanted, [['/10.0.0.1', '/10.0.0.2']]);
  answered.apply('/10.0.0.1', stamp('e/10'));
  demands.release();
  t.is(told, 0);
  answered.apply('/10.0.0.2', stamp('e/10'));
  demands.release();
  t.is(told, 1);
  t.true(demands.offer(lookup([address('10.0.0.1')], 'pod'), () => t.fail()));
  demands.close();
});

test('a lookup is repeated every second, and ends after its time', async (t) => {
  const { clock, demands, wanted } = rig();
  let told = 0;
  demands.offer(lookup([address('10.0.0.1')], 'pod'), () => (told += 1));
  await clock.advance(4_999);
  t.is(told, 0);
  t.deepEqual(
    wanted,
    Array.from({ length: 5 }, () => ['/10.0.0.1']),
  );
  await clock.advance(1);
  t.is(told, 1);
  t.is(demands.stats.waited, 0);
  demands.close();
});

test('a lookup for telemetry waits for nothing, and one without a pod asks for nothing', (t) => {
  const { demands, wanted } = rig();
  t.true(demands.offer(lookup([address('10.0.0.1')]), () => t.fail()));
  t.deepEqual(wanted, []);
  t.true(demands.offer(lookup([address('10.0.0.1')], 'pod', false), () => t.fail()));
  t.true(demands.offer(lookup([address('10.0.0.1')], 'pod', false), () => t.fail()));
  t.deepEqual(wanted, [['/10.0.0.1']], 'once a second');
  t.true(demands.knows({ kind: 'hostname', hostname: 'a' }), 'a host name cannot be asked for');
  demands.close();
});

test('a pod that asks for too many names waits for its turn, others do not', async (t) => {
  const { clock, demands } = rig();
  const ask = (pod: string, index: number): boolean =>
    !demands.offer(lookup([address(`10.1.${index >> 8}.${index & 255}`)], pod), () => undefined);
  for (let index = 0; index < NAMES_OF_POD.burst; index += 1) t.true(ask('scanner', index));
  t.false(ask('scanner', 1_000));
  t.is(demands.stats.refused, 1);
  t.true(ask('other', 1_001));
  await clock.advance(1_000);
  t.true(ask('scanner', 1_002));
  demands.close();
});

test('no more names are waited for than the limit', (t) => {
  const { demands } = rig();
  for (let index = 0; index < NAMES_WAITED_MAX; index += 1) {
    const ip = `10.1.${index >> 8}.${index & 255}`;
    t.false(demands.offer(lookup([address(ip)], `pod-${index}`), () => undefined));
  }
  t.true(demands.offer(lookup([address('10.9.9.9')], 'late'), () => t.fail()));
  t.is(demands.stats.waited, NAMES_WAITED_MAX);
  demands.close();
});

test('names in use are repeated, and threads forget them to tell whether they still use them', async (t) => {
  const { answered, clock, demands, forgotten, wanted } = rig();
  answered.apply('/10.0.0.1', stamp('e/1'));
  answered.apply('/10.0.0.2', stamp('e/1'));
  demands.offer(lookup([address('10.0.0.1')], 'pod'), () => t.fail());
  await clock.advance(NAMES_REFRESH_MS + ASK_AGAIN_MS);
  t.deepEqual(wanted, [['/10.0.0.1']]);
  t.deepEqual(forgotten, ['address:/10.0.0.1']);
  await clock.advance(NAMES_REFRESH_MS + ASK_AGAIN_MS);
  t.deepEqual(wanted, [['/10.0.0.1']], 'used no more');
  demands.close();
});

test('what a pod needs is asked for until it is known, and repeated while the pod is served', async (t) => {
  const { answered, clock, demands, wanted } = rig();
  t.false(demands.pin('pod', ['c//Pod/demo/a']));
  t.false(demands.pin('pod', ['c//Pod/demo/a', 'demo/web.test']));
  t.deepEqual(wanted, [['c//Pod/demo/a'], ['demo/web.test']]);
  t.deepEqual([...demands.takeKnownPins()], []);
  await clock.advance(ASK_AGAIN_MS);
  t.deepEqual(wanted.at(-1), ['c//Pod/demo/a', 'demo/web.test']);
  for (const name of ['c//Pod/demo/a', 'demo/web.test']) answered.apply(name, stamp('e/1'));
  t.deepEqual([...demands.takeKnownPins()], ['uid:c//Pod/demo/a', 'service:demo/web.test']);
  t.true(demands.pin('pod', ['c//Pod/demo/a', 'demo/web.test']));
  const before = wanted.length;
  await clock.advance(NAMES_REFRESH_MS);
  t.deepEqual(wanted.slice(before), [['c//Pod/demo/a', 'demo/web.test']]);
  demands.unpin('pod');
  await clock.advance(NAMES_REFRESH_MS);
  t.is(wanted.length, before + 1);
  demands.close();
});

test('names go to Redis in bounded entries; what cannot be sent is dropped and told', async (t) => {
  const { log, lines } = capturedLog();
  const sent: number[] = [];
  const gate = Promise.withResolvers<void>();
  let away = false;
  const sender = new WantSender({
    log,
    add: async (names) => {
      await gate.promise;
      if (away) throw new MeshError('BUS_UNAVAILABLE', 'gone');
      sent.push(names.length);
    },
  });
  sender.send(['a/b']);
  sender.send(Array.from({ length: NAMES_UNSENT_MAX + 10 }, (_, index) => `a/${index}`));
  t.is(sender.dropped, 10);
  gate.resolve();
  await sender.idle;
  t.is(sent.length, 1 + NAMES_UNSENT_MAX / 256);
  t.is(Math.max(...sent), 256);
  away = true;
  sender.send(['a/b']);
  await sender.idle;
  t.deepEqual(
    lines.map(({ message }) => message),
    ['names.not-asked'],
  );
});
