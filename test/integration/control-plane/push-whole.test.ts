/** A large transaction reaches the nodes whole, though it is published in parts. */
import test from 'ava';
import { MAX_MESSAGE_ROWS } from '../../../services/control-plane/limits.ts';
import { createControlPlaneKit } from '../../support/control-plane-kit.ts';
import { until } from '../../support/until.ts';

const COUNT = 40 * MAX_MESSAGE_ROWS;

const account = (index: number): object => ({
  apiVersion: 'v1',
  kind: 'ServiceAccount',
  metadata: { name: `s-${index}`, namespace: 'default' },
});

test('nothing is pushed between the parts of a transaction', async (t) => {
  const kit = await createControlPlaneKit(t);
  const { metrics } = await kit.start({ PILOT_DEBOUNCE_AFTER: '1ms', PILOT_DEBOUNCE_MAX: '1ms' });
  const documents = Array.from({ length: COUNT }, (_, index) => ({
    source: 'test',
    index,
    object: account(index),
  }));
  t.is((await kit.api.send('POST', '/apply', { documents })).status, 200);
  const pushes = async (): Promise<number> =>
    Number(/^pilot_debounce_time_count (\d+)$/mu.exec(await metrics())?.[1] ?? 0);
  await until(async () => (await pushes()) > 0, { what: 'the push' });
  t.is(await pushes(), 1);
});
