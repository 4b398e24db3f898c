import test from 'ava';
import { encodeProxyHeader } from '../../../../lib/net/proxy-protocol.ts';

const SIGNATURE = '0d0a0d0a000d0a515549540a';

test('IPv4 with an identity', (t) => {
  const header = encodeProxyHeader({
    source: { ip: '10.0.0.1', port: 40_000 },
    destination: { ip: '10.0.0.2', port: 80 },
    identity: 'spiffe://td/ns/a/sa/b',
  });
  t.is(header.subarray(0, 12).toString('hex'), SIGNATURE);
  t.is(header.subarray(12, 16).toString('hex'), '21110024');
  t.is(header.subarray(16, 28).toString('hex'), '0a0000010a0000029c400050');
  t.is(header.subarray(28, 31).toString('hex'), 'd00015');
  t.is(header.subarray(31).toString(), 'spiffe://td/ns/a/sa/b');
});

test('IPv6 without an identity, and mixed families as IPv6', (t) => {
  const header = encodeProxyHeader({
    source: { ip: 'fd00::1', port: 1 },
    destination: { ip: '10.0.0.2', port: 2 },
    identity: null,
  });
  t.is(header.subarray(12, 16).toString('hex'), '21210024');
  t.is(header.length, 16 + 36);
  t.is(header.subarray(32, 48).toString('hex'), '00000000000000000000ffff0a000002');
  t.throws(
    () =>
      encodeProxyHeader({
        source: { ip: 'x', port: 1 },
        destination: { ip: '::', port: 2 },
        identity: null,
      }),
    { code: 'ADDRESS_INVALID' },
  );
});
