import test from 'ava';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import type { NetnsHandle } from '../../../../lib/linux/netns-handle.ts';
import type { Exposure } from '../../../../services/node-agent/metrics.ts';
import { PodGuard } from '../../../../services/node-agent/pod-guard.ts';
import { keptLog } from '../../../support/actor-context.ts';
import { podRecord } from '../../../support/pod-records.ts';

const RECORD = podRecord({ uid: 'u-1', netns: '/run/netns/u-1' });

/** Guards a pod whose rules can never be written. */
function guarded(options: { readonly mayCut: () => boolean | null; readonly cut?: boolean }): {
  readonly guard: PodGuard;
  readonly done: readonly string[];
  fail(): Promise<Exposure | null>;
} {
  const done: string[] = [];
  let cutOff = options.cut ?? false;
  const { log } = keptLog('node-agent');
  const guard = new PodGuard(
    {
      log,
      metrics: { cutOff: () => void done.push('counted') } as never,
      tell: (_record, event) => void done.push(event),
      mayCut: options.mayCut,
      onCutFound: () => void done.push('found'),
    },
    {
      netns: {} as NetnsHandle,
      get cutOff() {
        return cutOff;
      },
      open: () => Promise.resolve(true),
      standing: () => Promise.resolve(false),
      cut: async () => void (cutOff = true),
      uncut: async () => void (cutOff = false),
    },
  );
  const fail = async (): Promise<Exposure | null> => {
    await guard.failed(RECORD, 'no nft');
    return guard.exposure;
  };
  return { guard, done, fail };
}

test('a pod is neither cut off nor left open while other pods were not looked at', async (t) => {
  let may: boolean | null = null;
  const { guard, done, fail } = guarded({ mayCut: () => may });
  await guard.open(RECORD);
  t.deepEqual([await fail(), await fail(), await fail()], [null, null, null]);
  t.deepEqual(done, []);
  may = true;
  t.is(await fail(), 'cut');
  t.deepEqual(done, ['counted', 'MeshPodCutOff']);
});

test('a cut that is found at the first look is told, and kept without another decision', async (t) => {
  const { guard, done, fail } = guarded({ mayCut: () => false, cut: true });
  t.false(guard.lookedAt);
  await guard.open(RECORD);
  t.true(guard.lookedAt);
  t.deepEqual([guard.exposure, await fail(), await fail()], ['cut', 'cut', 'cut']);
  t.deepEqual(done, ['found']);
});

test('a pod that leaves the mesh takes its cut with it: the next one asks the limit anew', async (t) => {
  let asked = 0;
  const { guard, fail } = guarded({ mayCut: () => (asked += 1) === 1 });
  await guard.open(RECORD);
  t.deepEqual([await fail(), await fail()], [null, 'cut']);
  await guard.leave();
  t.deepEqual([guard.exposure, guard.failing], [null, false]);
  t.deepEqual([await fail(), await fail()], [null, 'open']);
  t.is(asked, 2);
});

test('a pod whose namespace cannot be opened counts as looked at', async (t) => {
  const { log } = keptLog('node-agent');
  const unopened = new MeshError('NETNS_UNAVAILABLE', 'there is none');
  const guard = new PodGuard({ log } as never, { open: () => Promise.reject(unopened) } as never);
  await t.throwsAsync(guard.open(RECORD), { code: 'NETNS_UNAVAILABLE' });
  t.true(guard.lookedAt);
});
