import { BlockList, isIP } from 'node:net';
import test from 'ava';
import * as fc from 'fast-check';
import { formatIp, parseIp, tryParseIp } from '../../lib/net/address.ts';
import {
  PrefixSet,
  formatPrefix,
  makePrefix,
  parsePrefix,
  prefixContains,
} from '../../lib/net/prefix.ts';

const bytesOf = (length: number) => fc.uint8Array({ minLength: length, maxLength: length });
/** Few distinct byte values, so that ranges and addresses meet. */
const clustered = (length: number) =>
  fc
    .array(fc.constantFrom(0, 1, 10, 127, 128, 255), { minLength: length, maxLength: length })
    .map((values) => Uint8Array.from(values));
const address = fc.oneof(clustered(4), clustered(16), bytesOf(4), bytesOf(16));
const prefix = address.chain((bytes) =>
  fc
    .integer({ min: 0, max: bytes.length * 8 })
    .map((length) => makePrefix({ family: bytes.length === 4 ? 4 : 6, bytes }, length)),
);

/** node:net unwraps mapped addresses when checking; this project matches families strictly. */
const mapped = (bytes: Uint8Array): boolean =>
  formatIp(bytes).startsWith('::ffff:') && bytes.length === 16;

test('formatting and parsing are inverse', (t) => {
  fc.assert(
    fc.property(address, (bytes) => {
      const text = formatIp(bytes);
      return isIP(text) !== 0 && Buffer.from(bytes).equals(parseIp(text).bytes);
    }),
  );
  t.pass();
});

test('what parses is what node:net takes', (t) => {
  const text = fc.oneof(
    fc.string({ unit: fc.constantFrom('0', '1', '9', 'a', 'F', ':', '::', '.'), maxLength: 14 }),
    fc.ipV4(),
    fc.ipV6(),
  );
  fc.assert(
    fc.property(text, (value) => (tryParseIp(value)?.family ?? 0) === isIP(value)),
    { numRuns: 5_000 },
  );
  t.pass();
});

test('a set answers as node:net.BlockList and as its ranges one by one', (t) => {
  fc.assert(
    fc.property(
      fc.array(prefix, { maxLength: 30 }),
      fc.array(address, { maxLength: 20 }),
      (prefixes, addresses) => {
        const set = new PrefixSet(prefixes);
        const list = new BlockList();
        for (const item of prefixes) {
          list.addSubnet(formatIp(item.bytes), item.length, item.family === 4 ? 'ipv4' : 'ipv6');
        }
        for (const bytes of [...addresses, ...prefixes.map((item) => item.bytes)]) {
          const ip = { family: bytes.length === 4 ? (4 as const) : (6 as const), bytes };
          const naive = prefixes.some((item) => prefixContains(item, ip));
          if (set.contains(ip) !== naive) return false;
          const crossFamily =
            mapped(bytes) || (ip.family === 4 && prefixes.some((item) => item.family === 6));
          const told = list.check(formatIp(bytes), ip.family === 4 ? 'ipv4' : 'ipv6');
          if (!crossFamily && told !== naive) return false;
        }
        return true;
      },
    ),
    { numRuns: 500 },
  );
  t.pass();
});

test('ranges are read and written, host bits cleared', (t) => {
  t.is(formatPrefix(parsePrefix('10.1.2.9/24')), '10.1.2.0/24');
  t.is(formatPrefix(parsePrefix('10.1.2.9')), '10.1.2.9/32');
  t.is(formatPrefix(parsePrefix('fd00::ffff/112')), 'fd00::/112');
  t.is(formatPrefix(parsePrefix('::ffff:10.0.0.0/104')), '::ffff:10.0.0.0/104');
  t.is(formatPrefix(parsePrefix('10.0.0.1/0')), '0.0.0.0/0');
});

for (const text of [
  '',
  '10.0.0.0/',
  '10.0.0.0/33',
  'fd00::/129',
  '10.0.0.0/8/8',
  '10.0.0.0/08',
  'x/8',
  '10.0.0.0/-1',
]) {
  test(`"${text}" is no range`, (t) => {
    t.throws(() => parsePrefix(text), { code: 'ADDRESS_INVALID' });
  });
}

test('an IPv4-mapped range holds no IPv4 address', (t) => {
  const range = parsePrefix('::ffff:10.0.0.0/104');
  t.false(prefixContains(range, parseIp('10.0.0.1')));
  t.false(new PrefixSet([range]).contains(parseIp('10.0.0.1')));
  t.true(prefixContains(range, parseIp('::ffff:10.0.0.1')));
});
