/** Tests how encoded resources lie in memory. */
import test from 'ava';
import { istio } from '#proto/resources.js';
import { decodeAddress, encodeWorkload } from '../../../../lib/xds/resources/address.ts';
import { encodeKept } from '../../../../lib/xds/resources/kept-bytes.ts';
import { workloadFixture } from '../../../support/model-fixtures.ts';

test('kept messages share small blocks that hold nothing else, and none is overwritten', (t) => {
  const names = Array.from({ length: 200 }, (_, index) => `workload-${index}`);
  const kept = names.map((name) => encodeWorkload(workloadFixture({ name, uid: name })));
  const bytes = kept.reduce((sum, { length }) => sum + length, 0);
  const blocks = new Set(kept.map(({ buffer }) => buffer));
  const held = [...blocks].reduce((sum, { byteLength }) => sum + byteLength, 0);
  t.true(held < 1.1 * bytes + 4_096, `${held} bytes for ${bytes}`);
  t.deepEqual(
    kept.map((each) => {
      const address = decodeAddress(each);
      return address.kind === 'workload' ? address.workload.name : null;
    }),
    names,
  );
});

test('a large message, and one that cannot be encoded, disturb no other', (t) => {
  const { Authorization } = istio.security;
  const name = 'x'.repeat(10_000);
  const large = encodeKept((writer) => Authorization.encode({ name }, writer));
  t.is(large.buffer.byteLength, large.length);
  t.throws(
    () =>
      encodeKept((writer) => {
        Authorization.encode({ name: 'half' }, writer).fork();
        throw new Error('unusable');
      }),
    { message: 'unusable' },
  );
  const plain = encodeKept((writer) => Authorization.encode({ name: 'plain' }, writer));
  t.is(Authorization.decode(plain).name, 'plain');
  t.is(Authorization.decode(large).name, name);
});
