import test from 'ava';
import { expiryLine, firstExpiry } from '../../../../services/cli/first-expiry.ts';

const NOW = Date.parse('2026-11-22T12:00:00Z');

test('the certificate that expires first is told with its hours', (t) => {
  const records = [
    { identity: 'spiffe://a', node: 'node-1', notAfter: '2026-11-23T00:00:00Z' },
    { identity: 'spiffe://b', node: 'node-2', notAfter: '2026-11-22T19:45:00Z' },
    { identity: 'spiffe://c', node: 'node-2', notAfter: null },
  ];
  const first = firstExpiry(records, NOW);
  t.deepEqual(first, { identity: 'spiffe://b', node: 'node-2', hours: 7.8 });
  t.is(firstExpiry([], NOW), null);
  t.is(
    first === null ? '' : expiryLine(first),
    'the first certificate expires in 7.8 h: spiffe://b on node-2',
  );
  t.is(
    expiryLine({ identity: 'spiffe://b', node: 'node-2', hours: -1.5 }),
    'the first certificate expired 1.5 h ago: spiffe://b on node-2',
  );
});
