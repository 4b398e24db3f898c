import test from 'ava';
import { isOlderVersion } from '../../../../lib/kubernetes/objects.ts';

test('versions are compared as numbers of any length, and nothing else is', (t) => {
  t.true(isOlderVersion('9', '10'));
  t.true(isOlderVersion('123456789012345678901', '123456789012345678902'));
  t.false(isOlderVersion('10', '9'));
  t.false(isOlderVersion('10', '10'));
  for (const [version, than] of [
    ['', '10'],
    ['a', 'b'],
    ['09', '10'],
    ['9', 'x'],
  ] as const) {
    t.false(isOlderVersion(version, than), version);
  }
});
