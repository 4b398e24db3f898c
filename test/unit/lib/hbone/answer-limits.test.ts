import test from 'ava';
import { AnswerLimits } from '../../../../lib/hbone/session/answer-limits.ts';
import { SessionTimers } from '../../../../lib/hbone/session-timers.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

test('each request is late at its own time, by one timer', async (t) => {
  const clock = new FakeClock();
  const limits = new AnswerLimits(clock, new SessionTimers(clock), 100);
  const late: string[] = [];
  limits.begin(() => late.push('first'));
  await clock.advance(40);
  const answered = limits.begin(() => late.push('answered'));
  await clock.advance(20);
  limits.begin(() => late.push('last'));
  limits.done(answered);
  await clock.advance(39);
  t.deepEqual(late, []);
  await clock.advance(1);
  t.deepEqual(late, ['first']);
  await clock.advance(59);
  t.deepEqual(late, ['first']);
  await clock.advance(1);
  t.deepEqual(late, ['first', 'last']);
  // Nobody waited any more: the next request has its whole time.
  await clock.advance(1_000);
  limits.begin(() => late.push('next'));
  await clock.advance(99);
  t.is(late.length, 2);
  await clock.advance(1);
  t.is(late.at(-1), 'next');
});

test('a request that is late may end others and begin new ones', async (t) => {
  const clock = new FakeClock();
  const limits = new AnswerLimits(clock, new SessionTimers(clock), 100);
  const late: string[] = [];
  limits.begin(() => {
    late.push('first');
    limits.done(second);
    limits.begin(() => late.push('again'));
  });
  const second = limits.begin(() => late.push('second'));
  await clock.advance(100);
  await clock.advance(100);
  t.deepEqual(late, ['first', 'again']);
});

test('timers that are cancelled together end the limits, too', async (t) => {
  const clock = new FakeClock();
  const timers = new SessionTimers(clock);
  const limits = new AnswerLimits(clock, timers, 100);
  limits.begin(() => t.fail());
  timers.cancelAll();
  await clock.advance(200);
  t.pass();
});
