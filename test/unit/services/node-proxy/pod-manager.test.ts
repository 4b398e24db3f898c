import test from 'ava';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { createLogger } from '../../../../lib/log/logger.ts';
import { PlacedPod } from '../../../../services/node-proxy/pool/placed-pod.ts';
import { PodManager } from '../../../../services/node-proxy/pods/pod-manager.ts';
import type { PodInfo } from '../../../../workers/listener/protocol/control.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const info: PodInfo = { uid: 'u', name: 'web', namespace: 'demo', serviceAccount: 'web' };

/** Makes a manager with threads under the test's control; a descriptor's number names its namespace. */
function setUp() {
  const placed: { readonly pod: PlacedPod; readonly fd: number }[] = [];
  const closed: number[] = [];
  const clock = new FakeClock();
  let full = false;
  const place = (pod: PodInfo, fd: number, avoid: ReadonlySet<number>): PlacedPod => {
    if (full && avoid.size > 0) throw new MeshError('STATE_UNAVAILABLE', 'no other thread');
    const made = new PlacedPod(pod, 0, () => undefined);
    placed.push({ pod: made, fd });
    return made;
  };
  const manager = new PodManager({
    clock,
    log: createLogger({ actor: 'test', level: 'silent' }),
    podDrainMs: 60_000,
    counters: { started: () => undefined, stopped: () => undefined, lost: () => undefined },
    place,
    placeOn: (pod, _thread, fd) => place(pod.info, fd, new Set()),
    duplicate: (fd) => fd + 1_000,
    divide: () => undefined,
    netnsIdentity: (fd) => ({ inode: String(fd), device: '0' }),
    closeFd: (fd) => void closed.push(fd),
    changed: () => undefined,
  });
  return {
    manager,
    clock,
    placed,
    closed,
    /** Leaves only a thread that already holds the pod. */
    fill: (): void => {
      full = true;
    },
    async up(fd: number): Promise<PlacedPod> {
      const adding = manager.add(info, fd);
      await clock.advance(0);
      const pod = placed.at(-1)?.pod;
      if (pod === undefined) throw new Error('the pod was not placed');
      pod.markListening();
      await adding;
      return pod;
    },
  };
}

type Rig = ReturnType<typeof setUp>;

const departures: Readonly<Record<string, (rig: Rig) => unknown>> = {
  'a new session': ({ manager }) => manager.sessionOpened(),
  'a snapshot': ({ manager }) => manager.snapshot(new Set()),
  'a drain': ({ manager }) => manager.drain(60_000),
  'a stop': ({ manager }) => manager.stop(),
};

for (const [what, leave] of Object.entries(departures)) {
  test(`${what} while its predecessor ends: the pod's closed descriptor is given to no thread`, async (t) => {
    const rig = setUp();
    const first = await rig.up(1);
    const adding = t.throwsAsync(rig.manager.add(info, 2), { code: 'STATE_UNAVAILABLE' });
    await rig.clock.advance(0);
    void leave(rig);
    t.deepEqual(rig.closed, [2]);
    first.end(null);
    await adding;
    t.deepEqual(
      rig.placed.map(({ fd }) => fd),
      [1],
    );
    t.deepEqual(
      rig.closed.toSorted((left, right) => left - right),
      [1, 2],
    );
  });

  test(`${what} while a drain is cut short to make room: the same`, async (t) => {
    const rig = setUp();
    const first = await rig.up(1);
    await rig.manager.delete(info.uid);
    rig.fill();
    // The same namespace: its connections may go on, but no other thread can take the pod.
    const adding = t.throwsAsync(rig.manager.add(info, 1), { code: 'STATE_UNAVAILABLE' });
    await rig.clock.advance(0);
    void leave(rig);
    first.end(null);
    await adding;
    t.is(rig.placed.length, 1);
    t.is(rig.closed.length, 2, 'that of the drained pod and that of the one that came');
  });
}

test('a pod that has left keeps no timer, however long it might have taken', async (t) => {
  const rig = setUp();
  await rig.up(1);
  const { pending } = rig.clock;
  for (const thread of [1, 2, 3]) {
    const sharing = rig.manager.share(info.uid, 0);
    await rig.clock.advance(0);
    const share = rig.placed.at(-1)?.pod;
    share?.markListening();
    await sharing;
    rig.manager.unshare(info.uid, 0);
    share?.end(null);
    await rig.clock.advance(0);
    t.is(rig.clock.pending, pending, `after ${thread}`);
  }
  t.is(rig.manager.leaving, 0);
});

test('nor does one that had to be forced out', async (t) => {
  const rig = setUp();
  const first = await rig.up(1);
  const { pending } = rig.clock;
  await rig.manager.delete(info.uid);
  await rig.clock.advance(61_000);
  t.is(rig.clock.pending, pending + 1, 'it is told to end now, and watched');
  first.end(null);
  await rig.clock.advance(0);
  t.is(rig.clock.pending, pending);
});
