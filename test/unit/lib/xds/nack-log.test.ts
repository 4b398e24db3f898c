import test from 'ava';
import { MAX_LISTED_NACKS, NackLog } from '../../../../lib/xds/nack-log.ts';
import { keptLog } from '../../../support/actor-context.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const nack = (reason: string) => ({ node: 'n', stream: 's', type: 'T', nonce: '1', reason });

test('refusals are listed up to a bound, and logged at a bounded rate', async (t) => {
  const clock = new FakeClock();
  const { log, lines } = keptLog('server');
  const nacks = new NackLog({ log, clock });
  for (let index = 0; index <= MAX_LISTED_NACKS; index += 1) nacks.note(nack(`no ${index}`));
  t.is(nacks.nacks.length, MAX_LISTED_NACKS);
  t.is(nacks.nacks[0]?.reason, 'no 1');
  t.is(lines.length, 50);
  await clock.advance(1_000);
  nacks.note(nack('x'.repeat(5_000)));
  t.is(lines.at(-1)?.['unlogged'], MAX_LISTED_NACKS + 1 - 50);
  t.is(nacks.nacks.at(-1)?.reason.length, 2_000);
  t.is(nacks.nacks.at(-1)?.at, new Date(clock.now()).toISOString());
});
