import test from 'ava';
import { defineConfig } from '../../../../lib/config/define-config.ts';
import { integer, text } from '../../../../lib/config/fields.ts';
import { retiredVariables, unknownVariables } from '../../../../lib/config/unknown-variables.ts';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';

const spec = defineConfig(
  {
    A_NAME: { schema: text(), description: 'a name' },
    A_COUNT: { schema: integer({ min: 1 })({ default: 2 }), description: 'a count' },
  },
  (values) => ({ name: values.A_NAME, nested: { count: values.A_COUNT } }),
);

test('values are mapped, frozen all the way down and clonable', (t) => {
  const config = spec.parse({ A_NAME: 'x' });
  t.deepEqual(config, { name: 'x', nested: { count: 2 } });
  t.true(Object.isFrozen(config.nested));
  t.deepEqual(structuredClone(config), config);
});

test('all problems are reported at once, each with its variable', (t) => {
  const error = t.throws(() => spec.parse({ A_COUNT: '0' }), { instanceOf: MeshError });
  t.is(error.code, 'CONFIG_INVALID');
  t.regex(error.message, /A_NAME is required; A_COUNT must be a whole number from 1/);
});

test('a misspelt WEFT variable is named with its nearest neighbour', (t) => {
  const problems = unknownVariables({ WEFT_ACCES_LOG: 'x', AMBIENT_X: 'y' }, ['WEFT_ACCESS_LOG']);
  t.deepEqual(problems, ['WEFT_ACCES_LOG is unknown, did you mean WEFT_ACCESS_LOG?']);
  t.deepEqual(unknownVariables({ WEFT_CA_STATE_DIR: '/x' }, []), [
    'WEFT_CA_STATE_DIR is now WEFT_STATE_DIR',
  ]);
  t.deepEqual(unknownVariables({ WEFT_CA_PLUGGED_DIR: '/x' }, []), [
    'WEFT_CA_PLUGGED_DIR is now ROOT_CA_DIR',
  ]);
});

test('a retired setting is no problem, and is named', (t) => {
  const environment = { WEFT_HBONE_ENGINE: 'http2', WEFT_ACCESS_LOG: 'all' };
  t.deepEqual(unknownVariables(environment, ['WEFT_ACCESS_LOG']), []);
  t.deepEqual(retiredVariables(environment), ['WEFT_HBONE_ENGINE']);
});
