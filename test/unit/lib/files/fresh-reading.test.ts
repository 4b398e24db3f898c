import test from 'ava';
import { FreshReading } from '../../../../lib/files/fresh-reading.ts';

test('who asks during a reading gets one that begins after it, and all who ask then the same one', async (t) => {
  const readings: (() => void)[] = [];
  let under = 0;
  const fresh = new FreshReading(async () => {
    under += 1;
    t.is(under, 1, 'one at a time');
    await new Promise<void>((resolve) => readings.push(resolve));
    under -= 1;
  });
  const first = fresh.run();
  const late = [fresh.run(), fresh.run()];
  let told = 0;
  for (const one of late) void one.then(() => (told += 1));
  readings[0]?.();
  await first;
  t.is(told, 0);
  t.is(readings.length, 2);
  const later = fresh.run();
  readings[1]?.();
  await Promise.all(late);
  t.is(readings.length, 3);
  readings[2]?.();
  await later;
  const again = fresh.run();
  readings[3]?.();
  await again;
  t.is(readings.length, 4);
});
