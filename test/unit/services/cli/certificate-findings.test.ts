import test from 'ava';
import { certificateFindings } from '../../../../services/cli/certificate-findings.ts';

const NOW = Date.parse('2026-11-23T12:00:00Z');
const RECORD = {
  identity: 'spiffe://cluster.local/ns/demo/sa/web',
  node: 'node-1',
  serial: '01',
  notBefore: '2026-11-23T11:00:00Z',
  notAfter: '2026-11-23T13:00:00Z',
  state: 'Available',
};

test('certificates tell of a CA that is away and of clocks that differ', (t) => {
  const causes = (changes: Partial<typeof RECORD>): readonly string[] =>
    certificateFindings([{ ...RECORD, ...changes }], NOW).map(({ cause }) => cause);
  t.deepEqual(causes({}), []);
  t.deepEqual(causes({ state: 'Initializing' }), []);
  t.deepEqual(causes({ state: 'Unavailable: 14 UNAVAILABLE: connect ECONNREFUSED' }), [
    'CA unreachable',
  ]);
  t.deepEqual(causes({ state: 'Unavailable: the CA refuses this identity' }), ['no certificate']);
  t.deepEqual(causes({ notBefore: '2026-11-23T12:05:00Z' }), ['clock skew']);
  t.deepEqual(causes({ notAfter: '2026-11-23T11:59:00Z' }), ['no certificate']);
});
