import test from 'ava';
import {
  canonicalIp,
  canonicalIpOf,
  formatHostPort,
  formatIp,
  ipFamily,
  parseIp,
  tryCanonicalIp,
  tryParseHostPort,
  tryParseIp,
} from '../../../../lib/net/address.ts';

const texts: readonly (readonly [written: string, formatted: string])[] = [
  ['10.0.0.1', '10.0.0.1'],
  ['0.0.0.0', '0.0.0.0'],
  ['::', '::'],
  ['::1', '::1'],
  ['FD00::A', 'fd00::a'],
  ['fd00:0:0:1:0:0:0:1', 'fd00:0:0:1::1'],
  ['2001:db8:0:0:1:0:0:1', '2001:db8::1:0:0:1'],
  ['2001:db8:0:1:1:1:1:1', '2001:db8:0:1:1:1:1:1'],
  ['1:2:3:4:5:6:7::', '1:2:3:4:5:6:7:0'],
  ['64:ff9b::10.0.0.1', '64:ff9b::a00:1'],
  ['::ffff:10.0.0.1', '::ffff:10.0.0.1'],
  ['::FFFF:0a00:0001', '::ffff:10.0.0.1'],
  ['::10.0.0.1', '::a00:1'],
];

for (const [written, formatted] of texts) {
  test(`${written} reads back as ${formatted}`, (t) => {
    t.is(formatIp(parseIp(written).bytes), formatted);
  });
}

const bad = [
  '',
  '10.0.0',
  '10.0.0.256',
  '10.0.0.01',
  '10.0.0.1 ',
  '1:2:3',
  '1::2::3',
  '12345::',
  '1:2:3:4:5:6:7:8:9',
  '1:2:3:4:5:6:7:8::',
  ':1::',
  'fe80::1%eth0',
  '10.0.0.1::',
  '::10.0.0.1:1',
  'g::',
];

for (const text of bad) {
  test(`"${text}" is no address`, (t) => {
    t.is(tryParseIp(text), null);
    t.throws(() => parseIp(text), { code: 'ADDRESS_INVALID' });
  });
}

test('the canonical form unwraps IPv4-mapped addresses', (t) => {
  t.is(canonicalIp('::ffff:10.0.0.1'), '10.0.0.1');
  t.is(canonicalIp('FD00:0::01'), 'fd00::1');
  t.is(canonicalIpOf(parseIp('::ffff:10.0.0.1').bytes), '10.0.0.1');
  t.throws(() => canonicalIpOf(new Uint8Array(5)), { code: 'ADDRESS_INVALID' });
});

for (const text of ['0.0.0.0', '1.2.3.4', '10.0.0.10', '255.255.255.255', '100.64.0.9']) {
  test(`${text} is canonical as it stands, and what is mapped of it`, (t) => {
    t.is(canonicalIp(text), text);
    t.is(canonicalIp(`::ffff:${text}`), text);
    t.is(canonicalIp(`::FFFF:${text}`), text);
    t.is(tryCanonicalIp(text), text);
    t.is(ipFamily(text), 4);
    t.is(ipFamily(`::ffff:${text}`), 6);
  });
}

for (const text of [
  '256.0.0.1',
  '1.2.3',
  '1.2.3.4.5',
  '1..2.3',
  '.1.2.3',
  '1.2.3.',
  '01.2.3.4',
  '00.0.0.0',
  '1.2.3.4 ',
  '1.2.3.-4',
  '1.2.3.٤',
]) {
  test(`"${text}" has no canonical form, nor has it behind a mapped prefix`, (t) => {
    t.is(tryCanonicalIp(text), null);
    t.is(tryCanonicalIp(`::ffff:${text}`), null);
    t.is(ipFamily(text), null);
    t.throws(() => canonicalIp(text), { code: 'ADDRESS_INVALID' });
  });
}

test('the family is told', (t) => {
  t.is(ipFamily('10.0.0.1'), 4);
  t.is(ipFamily('fd00::1'), 6);
  t.is(ipFamily('x'), null);
});

test('host and port are written and read', (t) => {
  t.is(formatHostPort('10.0.0.1', 80), '10.0.0.1:80');
  t.is(formatHostPort('fd00::1', 80), '[fd00::1]:80');
  t.deepEqual(tryParseHostPort('10.0.0.1:80'), { host: '10.0.0.1', port: 80 });
  t.deepEqual(tryParseHostPort('[FD00::1]:80'), { host: 'fd00::1', port: 80 });
  t.deepEqual(tryParseHostPort('[::ffff:10.0.0.1]:80'), { host: '10.0.0.1', port: 80 });
  t.deepEqual(tryParseHostPort('web.demo.svc:8080'), { host: 'web.demo.svc', port: 8080 });
});

for (const text of [
  '',
  ':80',
  '10.0.0.1',
  '10.0.0.1:',
  '10.0.0.1:65536',
  'fd00::1:80',
  '[10.0.0.1]:80',
  '[fd00::1]',
  '[fd00::1:80',
  'a b:1',
  'a:+1',
]) {
  test(`"${text}" is no host and port`, (t) => {
    t.is(tryParseHostPort(text), null);
  });
}
