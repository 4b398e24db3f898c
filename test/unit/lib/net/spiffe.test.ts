import test from 'ava';
import * as fc from 'fast-check';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { formatSpiffe, parseSpiffe, tryParseSpiffe } from '../../../../lib/net/spiffe.ts';

test('an identity has a trust domain, a namespace and a service account', (t) => {
  t.deepEqual(parseSpiffe('spiffe://cluster.local/ns/demo/sa/web'), {
    trustDomain: 'cluster.local',
    namespace: 'demo',
    serviceAccount: 'web',
  });
});

for (const uri of [
  '',
  'https://cluster.local/ns/demo/sa/web',
  'SPIFFE://cluster.local/ns/demo/sa/web',
  'spiffe://cluster.local/ns/demo',
  'spiffe://cluster.local/ns/demo/sa/web/extra',
  'spiffe://cluster.local/ns/demo/sa/web/',
  'spiffe://cluster.local/namespace/demo/sa/web',
  'spiffe:///ns/demo/sa/web',
  'spiffe://cluster.local/ns//sa/web',
  'spiffe://cluster.local/ns/demo/sa/',
  'spiffe://cluster.local:443/ns/demo/sa/web',
  'spiffe://cluster.local/ns/demo/sa/web?x=1',
  'spiffe://cluster.local/ns/demo/sa/web#x',
  'spiffe://cluster.local/ns/de%6Do/sa/web',
  'spiffe://cluster.local/ns/../sa/web',
  'spiffe://cluster.local/ns/demo/sa/we\0b',
  `spiffe://cluster.local/ns/demo/sa/${'x'.repeat(2048)}`,
]) {
  test(`is refused: ${JSON.stringify(uri.slice(0, 60))}`, (t) => {
    const error = t.throws(() => parseSpiffe(uri), { instanceOf: MeshError });
    t.is(error?.code, 'IDENTITY_INVALID');
    t.is(tryParseSpiffe(uri), null);
  });
}

test('format is the inverse of parse', (t) => {
  const segment = fc.stringMatching(/^[a-zA-Z0-9][a-zA-Z0-9._-]{0,40}$/);
  fc.assert(
    fc.property(segment, segment, segment, (trustDomain, namespace, serviceAccount) => {
      const id = { trustDomain, namespace, serviceAccount };
      t.deepEqual(parseSpiffe(formatSpiffe(id)), id);
    }),
  );
});

test('a part that would change the form cannot be formatted', (t) => {
  t.throws(() => formatSpiffe({ trustDomain: 'a', namespace: 'b/sa/c', serviceAccount: 'd' }), {
    instanceOf: MeshError,
  });
});
