import test from 'ava';
import { boards, jobs } from '../../lib/bus/catalog.ts';
import type { JobDefinition } from '../../lib/bus/contract.ts';
import { openEnvelope, sealEnvelope } from '../../lib/bus/envelope.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';

/** The type requires a sample of every message; a missing one is a compile error. */
const definitions: {
  readonly [Name in keyof typeof jobs]: (typeof jobs)[Name] & { sample: object };
} = jobs;

const crossings: Readonly<Record<string, (value: unknown) => unknown>> = {
  JSON: (value) => JSON.parse(JSON.stringify(value)) as unknown,
  'structured clone': (value) => structuredClone(value),
};

for (const [name, definition] of Object.entries(definitions) as [
  string,
  JobDefinition<unknown>,
][]) {
  for (const [crossing, cross] of Object.entries(crossings)) {
    test(`${name} survives ${crossing}`, (t) => {
      const message = { id: 'id', at: 1_700_000_000_000, from: 'test', body: definition.sample };
      const opened = openEnvelope(definition, cross(sealEnvelope(definition, message)));
      t.deepEqual(opened.body, definition.sample);
      t.is(opened.v, definition.version);
      t.is(opened.name, definition.name);
    });
  }
}

for (const [name, board] of Object.entries(boards)) {
  for (const [crossing, cross] of Object.entries(crossings)) {
    test(`result ${name} survives ${crossing}`, (t) => {
      t.deepEqual(board.body.parse(cross(board.sample)), board.sample);
    });
  }
}

test('names and queues are unique, and ids need no colon', (t) => {
  const all = Object.values(definitions);
  t.is(new Set(all.map(({ name }) => name)).size, all.length);
  for (const { queue, attempts } of all) {
    t.regex(queue, /^[a-z-]+$/);
    t.true(attempts >= 1);
  }
});

test('the current and the previous version are read, others are refused by name', (t) => {
  const current = { ...jobs.policyCompile, version: 3 };
  const seal = (v: number): unknown => ({
    ...sealEnvelope(current, { id: 'i', at: 1, from: 't', body: { setId: 'a', keys: [] } }),
    v,
  });
  t.is(openEnvelope(current, seal(3)).body.setId, 'a');
  t.throws(() => openEnvelope(current, seal(2)), { instanceOf: MeshError, message: /version 2/ });
  const upgrading = { ...current, previous: () => ({ setId: 'upgraded', keys: [] }) };
  t.is(openEnvelope(upgrading, seal(2)).body.setId, 'upgraded');
  for (const v of [1, 4]) {
    const error = t.throws(() => openEnvelope(upgrading, seal(v)), { instanceOf: MeshError });
    t.is(error.code, 'BUS_MESSAGE');
  }
});

test('a body in its older form, too, is read by readers of both versions', (t) => {
  const current = { ...jobs.policyCompile, version: 2 };
  const next = {
    ...current,
    version: 3,
    previous: () => ({ setId: 'upgraded', keys: [] }),
    older: () => ({ setId: 'older', keys: [] }),
  };
  const message = { id: 'i', at: 1, from: 't', body: { setId: 'newest', keys: [] } };
  const sealed: unknown = JSON.parse(JSON.stringify(sealEnvelope(next, message)));
  t.is(openEnvelope(current, sealed).body.setId, 'older');
  t.is(openEnvelope(next, sealed).body.setId, 'newest');
  const { older: _older, ...after } = next;
  t.is(openEnvelope(after, sealed).body.setId, 'newest');
  t.is(openEnvelope({ ...after, version: 4 }, sealed).body.setId, 'upgraded');
  t.throws(() => openEnvelope({ ...after, version: 5 }, sealed), { message: /version 3 is not/ });
});

test('what is no envelope, another message or a bad body is refused with a reason', (t) => {
  const definition = jobs.policyCompile;
  const sealed = sealEnvelope(definition, { id: 'i', at: 1, from: 't', body: definition.sample });
  for (const data of [null, 'text', {}, { ...sealed, v: 'one' }]) {
    t.throws(() => openEnvelope(definition, data), { message: /not an envelope/ });
  }
  t.throws(() => openEnvelope(definition, { ...sealed, name: 'other' }), {
    message: /unknown message other/,
  });
  t.throws(() => openEnvelope(definition, { ...sealed, body: { setId: 1 } }), { message: /setId/ });
});
