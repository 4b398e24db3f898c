import test from 'ava';
import {
  bool,
  bytes,
  duration,
  endpoint,
  integer,
  list,
  oneOf,
  port,
  text,
} from '../../../../lib/config/fields.ts';
import type { Field } from '../../../../lib/config/fields.ts';

const accepted = <T>(field: Field<T>, value: string | undefined): T => field.parse(value);
const refused = <T>(field: Field<T>, value: string | undefined): string => {
  const result = field.safeParse(value);
  return result.success ? 'accepted' : (result.error.issues[0]?.message ?? '');
};

test('durations are read with their unit, also combined', (t) => {
  t.is(accepted(duration(), '500ms'), 500);
  t.is(accepted(duration(), '1m30s'), 90_000);
  t.is(accepted(duration(), '24h'), 86_400_000);
  t.is(accepted(duration(), '1.5s'), 1_500);
});

test('a duration without unit, or with rubbish around it, is refused', (t) => {
  for (const value of ['5', 's', '5s!', ' 5s', '-5s'])
    t.regex(refused(duration(), value), /must be a duration/);
});

test('an absent or empty variable takes the default, null when optional, and is refused when required', (t) => {
  t.is(accepted(duration({ default: 7 }), undefined), 7);
  t.is(accepted(text({ default: 'x' }), ''), 'x');
  t.is(accepted(port({ optional: true }), undefined), null);
  t.is(refused(text(), undefined), 'is required');
});

test('numbers keep to their bounds', (t) => {
  t.is(accepted(port(), '65535'), 65_535);
  t.regex(refused(port(), '65536'), /from 0 to 65535, got "65536"/);
  t.regex(refused(integer({ min: 1 })(), '0'), /whole number from 1/);
  t.regex(refused(integer()(), '1e3'), /whole number/);
});

test('booleans, words, lists and bytes', (t) => {
  t.true(accepted(bool(), 'TRUE'));
  t.regex(refused(bool(), 'yes'), /true or false/);
  t.is(accepted(oneOf('a', 'b')(), 'b'), 'b');
  t.regex(refused(oneOf('a', 'b')(), 'c'), /one of a, b/);
  t.deepEqual(accepted(list(), ' a, ,b'), ['a', 'b']);
  t.is(accepted(bytes(), '4MiB'), 4_194_304);
  t.regex(refused(bytes(), '4MB'), /number of bytes/);
});

test('endpoints are unix paths or host and port', (t) => {
  t.deepEqual(accepted(endpoint(), 'unix:/run/x.sock'), { kind: 'unix', path: '/run/x.sock' });
  t.deepEqual(accepted(endpoint(), 'unix:///run/x.sock'), { kind: 'unix', path: '/run/x.sock' });
  t.deepEqual(accepted(endpoint(), '[::1]:80'), { kind: 'tcp', host: '::1', port: 80 });
  t.deepEqual(accepted(endpoint(), ':80'), { kind: 'tcp', host: '', port: 80 });
  for (const value of ['unix:x', '::1:80', 'a:99999', 'a'])
    t.regex(refused(endpoint(), value), /must be/);
});
