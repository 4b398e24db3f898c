import test from 'ava';
import { STANDBY_AFTER_MS } from '../../../../services/xds-ingester/limits.ts';
import { onceStandby } from '../../../../services/xds-ingester/standby.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

/** A connection and a lease under the test's control. */
function setUp() {
  const clock = new FakeClock();
  const listeners = new Set<(value: boolean) => void>();
  const listen = (listener: (value: boolean) => void): (() => void) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  };
  const state = { connected: false, held: false, stoodBy: 0 };
  const change = (next: Partial<typeof state>): void => {
    Object.assign(state, next);
    for (const listener of listeners) listener(true);
  };
  const bus = {
    get connected() {
      return state.connected;
    },
    onConnection: listen,
  };
  const lease = {
    get held() {
      return state.held;
    },
    onChange: listen,
  };
  const end = onceStandby({ bus, lease, clock }, () => {
    state.stoodBy += 1;
  });
  return { clock, listeners, state, change, end };
}

test('it stands by when Redis is there and another one holds the lease for a while, once', async (t) => {
  const { clock, listeners, state, change } = setUp();
  await clock.advance(2 * STANDBY_AFTER_MS);
  t.is(state.stoodBy, 0, 'Redis is away');
  change({ connected: true });
  await clock.advance(STANDBY_AFTER_MS - 1);
  t.is(state.stoodBy, 0);
  await clock.advance(1);
  t.is(state.stoodBy, 1);
  t.deepEqual([listeners.size, clock.pending], [0, 0]);
});

test('a leader stands by after it lost the lease, and not when it has it again', async (t) => {
  const { clock, state, change } = setUp();
  change({ connected: true });
  change({ held: true });
  await clock.advance(10 * STANDBY_AFTER_MS);
  change({ held: false });
  await clock.advance(STANDBY_AFTER_MS - 1);
  change({ held: true });
  await clock.advance(10 * STANDBY_AFTER_MS);
  t.is(state.stoodBy, 0);
  change({ held: false });
  await clock.advance(STANDBY_AFTER_MS);
  t.is(state.stoodBy, 1);
});

test('without Redis nothing is known, and an ended wait leaves nothing', async (t) => {
  const { clock, listeners, state, change, end } = setUp();
  change({ connected: true });
  change({ connected: false });
  await clock.advance(10 * STANDBY_AFTER_MS);
  change({ connected: true });
  end();
  await clock.advance(10 * STANDBY_AFTER_MS);
  t.deepEqual([state.stoodBy, listeners.size, clock.pending], [0, 0, 0]);
});
