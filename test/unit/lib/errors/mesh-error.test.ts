import test from 'ava';
import { MeshError, asMeshError, errorText } from '../../../../lib/errors/mesh-error.ts';

test('an error survives structured clone and JSON as wire data', (t) => {
  const error = new MeshError('POLICY_DENIED', 'denied by a/b', {
    detail: { policy: 'a/b' },
    cause: new Error('why'),
  });
  for (const wire of [
    structuredClone(error.toWire()),
    JSON.parse(JSON.stringify(error.toWire())),
  ]) {
    const back = MeshError.fromWire(wire);
    t.is(back.code, 'POLICY_DENIED');
    t.is(back.message, 'denied by a/b');
    t.deepEqual(back.detail, { policy: 'a/b' });
    t.is(errorText(back.cause), 'why');
    t.is(back.policy.http, 401);
  }
});

test('a foreign error is wrapped with context, a mesh error is kept', (t) => {
  const inner = new MeshError('BUS_TIMEOUT', 'late');
  t.is(asMeshError(inner, 'CONFIG_INVALID'), inner);
  t.is(
    asMeshError(new Error('boom'), 'BUS_UNAVAILABLE', 'while reading').message,
    'while reading: boom',
  );
  t.is(errorText(new AggregateError([new Error('a'), new Error('b')])), 'a; b');
});
