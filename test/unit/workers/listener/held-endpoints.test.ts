import test from 'ava';
import { serviceKey } from '../../../../lib/state/model.ts';
import type { Service } from '../../../../lib/state/model.ts';
import { HeldEndpoints } from '../../../../workers/listener/held-endpoints.ts';
import { KEPT_SERVICES } from '../../../../workers/listener/limits.ts';
import type { StateRequest } from '../../../../workers/listener/protocol/state.ts';
import { service, workload } from '../../../support/mesh-kit.ts';
import { until } from '../../../support/until.ts';

const web = service({ hostname: 'web.demo' });
const endpoint = (uid: string) => ({ workload: workload({ uid }), ports: { 80: 8080 } });
const page = (of: Service, anew: boolean, ...uids: string[]) => pageOf(1, of, anew, ...uids);
const pageOf = (epoch: number, of: Service, anew: boolean, ...uids: string[]) =>
  ({
    type: 'endpoints',
    service: serviceKey(of),
    epoch,
    anew: anew ? { balancing: null } : null,
    endpoints: uids.map((uid) =>
      uid.startsWith('-') ? ([uid.slice(1), null] as const) : ([uid, endpoint(uid)] as const),
    ),
  }) as const;
const uids = (held: HeldEndpoints, of: Service): string[] =>
  [...(held.of(of) ?? [])].map(({ workload: { uid } }) => uid);

test('endpoints are held as they were told last, and each message is taken in a turn of its own', async (t) => {
  const sent: StateRequest[] = [];
  const held = new HeldEndpoints((message) => sent.push(message));
  t.is(held.of(web), null);
  held.take(page(web, true, 'a', 'b'));
  t.deepEqual(sent, [], 'the next message may not come in this turn');
  await until(() => sent.length === 1, { what: 'the word that it was taken' });
  t.deepEqual(sent.splice(0), [{ type: 'endpoints.taken', service: serviceKey(web), epoch: 1 }]);
  const before = held.of(web);
  held.take(page(web, false, '-a', 'c', '-nobody'));
  t.deepEqual(uids(held, web), ['b', 'c']);
  t.is(held.of(web), before, 'answers that name it stay as they are');
  t.is(held.count, 3);
  held.take(page(web, true, 'd'));
  t.deepEqual(uids(held, web), ['d']);
  t.is(held.count, 2);
});

test('what was asked for longest ago is given up where there is too much, and said so', (t) => {
  const sent: StateRequest[] = [];
  const held = new HeldEndpoints((message) => sent.push(message), 2 * (KEPT_SERVICES + 1));
  const all = Array.from({ length: KEPT_SERVICES + 2 }, (_, index) =>
    service({ hostname: `s${index}.demo` }),
  );
  for (const [epoch, one] of all.entries()) {
    held.take(pageOf(epoch, one, true, `of ${one.hostname}`));
  }
  const [first = web, second = web] = all;
  held.of(first);
  const set = held.of(second);
  held.of(first);
  t.is(held.shrink().size, 1);
  t.is(held.of(all[2] ?? web), null);
  t.truthy(held.of(first));
  t.is(held.of(second), set);
  t.deepEqual(sent, [{ type: 'endpoints.release', service: 'demo/s2.demo', epoch: 2 }]);
  // A message that was in flight at that time is ignored.
  held.take(page(all[2] ?? web, false, 'late'));
  t.is(held.of(all[2] ?? web), null);
});

test('what one decision may need stays, whatever its size', (t) => {
  const held = new HeldEndpoints(() => {}, 1);
  for (let index = 0; index < KEPT_SERVICES; index += 1) {
    held.take(page(service({ hostname: `s${index}.demo` }), true, 'a', 'b'));
  }
  t.is(held.shrink().size, 0);
});
