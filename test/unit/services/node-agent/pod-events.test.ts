/** Tests the bound of the Events that wait for the API server. */
import test from 'ava';
import { systemClock } from '../../../../lib/clock/clock.ts';
import { WriteQueue } from '../../../../lib/kubernetes/write-queue.ts';
import { PodEvents } from '../../../../services/node-agent/kubernetes/pod-events.ts';
import { MAX_PODS } from '../../../../services/node-agent/limits.ts';
import { keptLog } from '../../../support/actor-context.ts';
import { podRecord } from '../../../support/pod-records.ts';
import { until } from '../../../support/until.ts';

test('while the API server takes nothing, Events of ever new pods do not pile up, and later ones are written', async (t) => {
  const clock = systemClock;
  const writes = new WriteQueue({ clock, log: keptLog('test').log });
  t.teardown(() => writes.close());
  const away = Promise.withResolvers<void>();
  let created = 0;
  const client = {
    create: async (): Promise<void> => {
      await away.promise;
      created += 1;
    },
  };
  const events = new PodEvents({ client, writes, clock, node: 'node-1' });
  const warn = (uid: string): void =>
    events.warn(
      podRecord({ uid, netns: '/proc/1/ns/net' }),
      'MeshPodCutOff',
      'its rules cannot be written',
    );
  for (let uid = 0; uid < MAX_PODS + 100; uid += 1) warn(`uid-${uid}`);
  t.is(writes.size, MAX_PODS);
  away.resolve();
  await until(() => writes.size === 0, { what: 'all is written' });
  t.is(created, MAX_PODS);
  warn(`uid-${MAX_PODS}`);
  await until(() => created === MAX_PODS + 1, { what: 'the Event that found no room, told again' });
});
