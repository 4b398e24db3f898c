import test from 'ava';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { createLogger } from '../../../../lib/log/logger.ts';
import { OwnListener } from '../../../../services/node-proxy/pods/own-listener.ts';
import { PlacedPod } from '../../../../services/node-proxy/pool/placed-pod.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { until } from '../../../support/until.ts';

const log = createLogger({ actor: 'node-proxy', node: '', level: 'silent' });
const own = { name: 'ztunnel-1', namespace: 'istio-system', serviceAccount: 'ztunnel' };

// spec: dataplane.md §7.7
test('it is placed as itself, placed again when that fails, and ends when told', async (t) => {
  const clock = new FakeClock();
  const placed: PlacedPod[] = [];
  let refusals = 1;
  const listener = new OwnListener(own, { clock, log }, (info) => {
    if (refusals > 0) {
      refusals -= 1;
      throw new MeshError('STATE_UNAVAILABLE', 'no thread');
    }
    const pod: PlacedPod = new PlacedPod(info, 0, () => pod.end(null));
    placed.push(pod);
    return pod;
  });
  listener.start();
  const placements = (count: number) =>
    until(
      async () => {
        await clock.advance(120_000);
        return placed.length === count;
      },
      { what: `placement ${count}` },
    );
  await placements(1);
  t.like(placed[0]?.info, { ...own, own: true });
  placed[0]?.end(new MeshError('NATIVE_SYSCALL', 'the port is taken'));
  await placements(2);
  await listener.drain(1_000);
  await listener.stop();
  t.true(placed[1]?.over);
  t.is(placed.length, 2);
});

test('one that never started ends at once', async (t) => {
  const listener = new OwnListener(own, { clock: new FakeClock(), log }, () => t.fail());
  await listener.stop();
  t.pass();
});
