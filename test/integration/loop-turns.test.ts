/** The longest turn of an event loop, of which prom-client's own look every 100 ms misses most. */
import test from 'ava';
import { setImmediate as turn } from 'node:timers/promises';
import { LoopTurns } from '../../lib/metrics/loop-turns.ts';
import { MetricRegistry } from '../../lib/metrics/registry.ts';

/** Occupies the thread. */
function block(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

test.serial('the longest turn is told, once, however short it is', async (t) => {
  const turns = new LoopTurns();
  t.is(turns.longest(), 0);
  await turn();
  block(40);
  await turn();
  await turn();
  t.true(turns.longest() >= 0.04);
  t.is(turns.longest(), 0);
});

test.serial(
  'a process tells its longest turn, and nothing of what a timer would have seen',
  async (t) => {
    const registry = new MetricRegistry();
    registry.collectProcessMetrics();
    await turn();
    block(40);
    await turn();
    await turn();
    const text = await registry.render();
    const lags = [...text.matchAll(/^(nodejs_eventloop_lag_\w+) (\S+)$/gm)];
    t.deepEqual(
      lags.map(([, name]) => name),
      ['nodejs_eventloop_lag_seconds', 'nodejs_eventloop_lag_max_seconds'],
    );
    const longest = lags.find(([, name]) => name === 'nodejs_eventloop_lag_max_seconds');
    t.true(Number(longest?.[2]) >= 0.04);
  },
);
