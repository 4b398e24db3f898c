import test from 'ava';
import { inSlices } from '../../../../lib/async/time-slice.ts';

function* steps(count: number): Generator<void, string> {
  for (let index = 0; index < count; index += 1) yield;
  return 'done';
}

test('the event loop turns between the slices of a long piece of work', async (t) => {
  let turns = 0;
  let running = true;
  const next = (): void => {
    turns += 1;
    if (running) setImmediate(next);
  };
  setImmediate(next);
  // Slices of length zero: one turn for each step.
  t.is(await inSlices(steps(50), 0), 'done');
  running = false;
  t.true(turns >= 50, `${turns} turns`);
  // A slice that outlasts the work: no extra turn.
  let turned = false;
  setImmediate(() => (turned = true));
  t.is(await inSlices(steps(50), 60_000), 'done');
  t.false(turned);
});

test('work that fails ends the slices with its error', async (t) => {
  function* failing(): Generator<void, never> {
    yield;
    throw new Error('cannot go on');
  }
  await t.throwsAsync(inSlices(failing(), 0), { message: 'cannot go on' });
});
