import test from 'ava';
import { TimeSlice, inSlices } from '../../../../lib/async/time-slice.ts';

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

/** Counts the turns of the event loop until it is stopped. */
function countTurns(): { now: () => number; stop: () => void } {
  let turns = 0;
  let running = true;
  const next = (): void => {
    turns += 1;
    if (running) setImmediate(next);
  };
  setImmediate(next);
  return { now: () => turns, stop: () => (running = false) };
}

test('pieces of work that share a slice take turns, one in a turn of the event loop', async (t) => {
  const turns = countTurns();
  const slice = new TimeSlice(0);
  const steps: { readonly work: string; readonly turn: number }[] = [];
  const work = async (name: string): Promise<void> => {
    for (let step = 0; step < 4; step += 1) {
      await slice.breathe();
      steps.push({ work: name, turn: turns.now() });
    }
  };
  await Promise.all([work('a'), work('b'), work('c')]);
  turns.stop();
  t.is(steps.map(({ work: name }) => name).join(''), 'abcabcabcabc');
  t.is(new Set(steps.map(({ turn }) => turn)).size, steps.length);
});

test('a piece of work that ends lets the others go on', async (t) => {
  const slice = new TimeSlice(0);
  let left = 0;
  const work = async (steps: number): Promise<void> => {
    for (let step = 0; step < steps; step += 1) await slice.breathe();
    left += 1;
  };
  await Promise.all([work(1), work(5), work(0), work(3)]);
  t.is(left, 4);
});
