import test from 'ava';
import { exitCodeOf } from '../../../../services/container-mesh/exec.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const RUNS = { Running: true, ExitCode: null };

test('the exit status is that of a command that has ended', async (t) => {
  const clock = new FakeClock();
  const answers = [RUNS, RUNS, { Running: false, ExitCode: 7 }];
  const status = exitCodeOf(async () => answers.shift() ?? RUNS, clock);
  await clock.advance(0);
  await clock.advance(1_000);
  t.is(await status, 7);
});

test('a status that the engine does not know is no success', async (t) => {
  await t.throwsAsync(
    exitCodeOf(async () => ({ Running: false, ExitCode: null })),
    { code: 'STATE_UNAVAILABLE', message: /does not know the exit status/ },
  );
});

test('a command that closed its output and runs on is given up', async (t) => {
  const clock = new FakeClock();
  let asked = 0;
  const status = exitCodeOf(async () => {
    asked += 1;
    return RUNS;
  }, clock);
  const refused = t.throwsAsync(status, { code: 'STATE_UNAVAILABLE', message: /runs on/ });
  await clock.advance(0);
  await clock.advance(60_000);
  await refused;
  t.is(asked, 101);
});
