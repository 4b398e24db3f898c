/** Tests messages of a newer version: additions are ignored unless they may restrict; another major is refused by name. */
import test from 'ava';
import { boards, jobs } from '../../lib/bus/catalog.ts';
import type { JobDefinition } from '../../lib/bus/contract.ts';
import { openEnvelope, sealEnvelope } from '../../lib/bus/envelope.ts';
import { decodeProgram } from '../../lib/policy/program-codec.ts';
import { messageKinds, plain } from '../support/message-samples.ts';

/** Fields that are maps: each of their keys has a meaning, so none is added. */
const MAPS = ['detail', 'ports', 'labels', 'annotations', 'namespaceLabels'];

/** An unknown condition may deny access, so such a row is refused; the process that needs it compiles it again. */
const STRICT = ['row programs'];

/** Returns the value as a newer version may write it: each object has one more field. */
function withMore(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withMore);
  if (typeof value !== 'object' || value === null) return value;
  const fields = Object.entries(value).map(([key, inner]) => [
    key,
    MAPS.includes(key) ? inner : withMore(inner),
  ]);
  return { ...Object.fromEntries(fields), addedByANewerVersion: { one: [1] } };
}

for (const [name, { encoded, decode }] of Object.entries(messageKinds)) {
  if (!encoded.startsWith('{') || STRICT.includes(name)) continue;
  test(`${name}: fields that a newer version added are passed over`, (t) => {
    const newer = JSON.stringify(withMore(JSON.parse(encoded)));
    t.deepEqual(plain(decode(newer)), plain(decode(encoded)));
  });
}

for (const name of ['table change', 'table removal', 'table epoch']) {
  test(`${name}: fields that a newer version added are passed over`, (t) => {
    const kind = messageKinds[name];
    const newer = [...(JSON.parse(kind?.encoded ?? '[]') as string[]), 'z', 'new'];
    t.deepEqual(kind?.decode(JSON.stringify(newer)), kind?.decode(kind.encoded));
  });
}

for (const name of ['row addresses, workload', 'row addresses, service', 'zds add', 'zds ack']) {
  test(`${name}: fields that a newer version added are passed over`, (t) => {
    const kind = messageKinds[name];
    // Field 1000, a varint of 1.
    const newer = Buffer.concat([
      Buffer.from(kind?.encoded ?? '', 'base64'),
      Buffer.from('c03e01', 'hex'),
    ]);
    t.deepEqual(plain(kind?.decode(newer.toString('base64'))), plain(kind?.decode(kind.encoded)));
  });
}

test('a program with a condition that this version does not know is refused, naming its set', (t) => {
  const row = Buffer.from(messageKinds['row programs']?.encoded ?? '', 'base64').toString();
  const newer = Buffer.from(JSON.stringify(withMore(JSON.parse(row))));
  t.throws(() => decodeProgram('set-1', newer), { message: /set-1/, code: 'POLICY_INVALID' });
  const next = Buffer.from(row.replace('"version":1', '"version":2'));
  t.throws(() => decodeProgram('set-1', next), { message: /set-1.*version/ });
});

test('an error code that a newer version added is taken as one that may go better next time', (t) => {
  const { body, sample } = boards.signed;
  const newer = JSON.parse(
    JSON.stringify(sample).replace('IDENTITY_REFUSED', 'IDENTITY_NEW'),
  ) as unknown;
  const read = body.parse(newer);
  t.is(read.ok ? null : read.error.code, 'IDENTITY_UNAVAILABLE');
});

for (const definition of Object.values(jobs) as JobDefinition<unknown>[]) {
  test(`${definition.name} of the next major version is refused, naming both`, (t) => {
    const message = { id: 'i', at: 1, from: 't', body: definition.sample };
    const v = definition.version + 1;
    const sealed = { ...sealEnvelope(definition, message), v };
    t.throws(() => openEnvelope(definition, sealed), {
      message: `${definition.name}: version ${v} is not readable, ${definition.version} is current`,
    });
  });
}
